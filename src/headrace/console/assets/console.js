// What every page can do: choose a theme, copy a command, show the field that a choice needs, tick
// all rows, show whether a broker answers; keys: "/" goes to the search field, down goes on to the
// list and moves in it, Escape leaves a field or closes what is open. Without this file every page still works.

const THEMES = ["auto", "light", "dark"];
const NAMES = { auto: "system", light: "light", dark: "dark" };

function showTheme() {
  const chosen = document.documentElement.dataset.theme;
  for (const name of document.querySelectorAll("[data-theme-name]")) name.textContent = NAMES[chosen];
}

function switchTheme() {
  const root = document.documentElement;
  root.dataset.theme = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
  document.cookie = `headrace-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  showTheme();
}

async function copy(button) {
  const text = button.parentElement.querySelector("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it by hand";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function showWhatIsNeeded(choice) {
  for (const field of choice.form.querySelectorAll("[data-shown-for]")) {
    const needed = field.dataset.shownFor.split(" ").includes(choice.value);
    field.hidden = !needed;
    for (const input of field.querySelectorAll("input")) input.disabled = !needed;
  }
}

showTheme();
for (const button of document.querySelectorAll("[data-theme-switch]")) {
  button.addEventListener("click", switchTheme);
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}
for (const choice of document.querySelectorAll("select[data-shows]")) {
  showWhatIsNeeded(choice);
  choice.addEventListener("change", () => showWhatIsNeeded(choice));
}
for (const all of document.querySelectorAll("[data-tick-all]")) {
  all.addEventListener("change", () => {
    for (const box of all.form.querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
  });
}
// An empty field says nothing: leave it out, so that a link shows only what matters.
for (const form of document.querySelectorAll("form.filter")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && field.value === "") field.disabled = true;
  });
}
// Where a page has no search of its own, "/" goes to the one of the topics.
function toSearch() {
  const search = document.querySelector("[data-search]");
  if (search) search.focus();
  else location.assign(`${document.documentElement.dataset.base}/topics#search`);
}
// What a row of a list leads to: its first link, or the button that opens it in place.
function targets() {
  const of = (row) => row.querySelector("[data-open]:not([hidden])") ?? row.querySelector("a");
  return [...document.querySelectorAll("table.list tbody tr")].map(of).filter(Boolean);
}
function moveBy(step) {
  const all = targets();
  if (!all.length) return false;
  const here = all.findIndex((each) => each.closest("tr").contains(document.activeElement));
  const next = here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step;
  if (!all[next]) return false;
  all[next].focus();
  return true;
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "Escape") {
    if (typing) typing.blur();
    const open = document.querySelector("details.pop[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  } else if (typing) {
    if (event.key === "ArrowDown" && event.target.matches("[data-search]") && moveBy(1)) event.preventDefault();
  } else if (event.key === "/") {
    event.preventDefault();
    toSearch();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    // Elsewhere arrows scroll, as on every page.
    if (event.target.closest("table.list tbody tr") && moveBy(event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
  }
});
if (location.hash === "#search") document.querySelector("[data-search]")?.focus();
// The dot beside the cluster's address: checked now and again for as long as the page is looked at.
const CHECK_EVERY_MS = 10000;
const connection = document.querySelector("[data-connection]");
async function checkConnection() {
  if (document.hidden) return;
  let words = "the console does not answer", kind = "dot bad";
  try {
    const reply = await fetch(connection.dataset.connection);
    if (!reply.ok) return;
    const { answers } = await reply.json();
    words = answers ? "connected" : "no broker answers";
    kind = answers ? "dot" : "dot bad";
  } catch { /* the console has ended */ }
  connection.querySelector(".dot").className = kind;
  const said = connection.querySelector(".hidden");
  // What is read aloud when it changes must not be written again when it does not.
  if (said.textContent !== words) said.textContent = words;
}
if (connection) {
  if (!connection.querySelector(".dot.bad")) checkConnection();
  setInterval(checkConnection, CHECK_EVERY_MS);
  document.addEventListener("visibilitychange", checkConnection);
}
// Coming back from the cache, a form must not keep its fields disabled.
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form.filter [disabled]")) field.disabled = false;
  for (const choice of document.querySelectorAll("select[data-shows]")) showWhatIsNeeded(choice);
});
