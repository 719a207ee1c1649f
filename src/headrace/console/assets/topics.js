// Favourites among topics: a star in each row, and a line of links above the list. They stay in this
// browser, apart for each cluster. Names of topics go in as text, never as HTML.

const table = document.querySelector("[data-topics]");
const line = document.querySelector("[data-favourites]");
const KEY = `headrace-favourites:${line.dataset.favourites}`;
const MOST = 100;

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

function write(names) {
  try {
    localStorage.setItem(KEY, JSON.stringify(names.slice(-MOST)));
  } catch { /* this browser keeps nothing */ }
}

function show() {
  const names = read();
  line.hidden = names.length === 0;
  line.querySelector("[data-names]").replaceChildren(...names.flatMap((name, at) => {
    const link = document.createElement("a");
    link.href = `${document.documentElement.dataset.base}/topics/${encodeURIComponent(name)}`;
    link.textContent = name;
    return at ? [" · ", link] : [link];
  }));
  for (const star of table?.querySelectorAll("[data-star]") ?? []) {
    star.setAttribute("aria-pressed", String(names.includes(star.dataset.star)));
  }
}

for (const star of table?.querySelectorAll("[data-star]") ?? []) {
  star.hidden = false;
  star.addEventListener("click", () => {
    const names = read(), name = star.dataset.star;
    write(names.includes(name) ? names.filter((each) => each !== name) : [...names, name]);
    show();
  });
}
show();
