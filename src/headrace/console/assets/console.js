// What every page can do: choose a theme, copy a command, show the field that a choice needs, tick
// all rows, go to the search field with "/", and show whether a broker answers. Without this file
// every page still works.

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
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("[data-search]");
  if (search) {
    event.preventDefault();
    search.focus();
  }
});
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
