// Rows of messages open in place: the page of the message is fetched, and its part is put below the row.
// Arrow keys move between rows, Enter opens and closes, Escape closes. Without this file the link of
// each row still opens its page.

const table = document.querySelector("[data-messages]");
const rows = [...table.querySelectorAll("tr[data-message]")];

function detailOf(row) {
  const next = row.nextElementSibling;
  return next && next.matches("[data-detail]") ? next : null;
}

function close(row) {
  detailOf(row)?.remove();
  row.querySelector("[data-open]").setAttribute("aria-expanded", "false");
}

async function open(row) {
  const button = row.querySelector("[data-open]");
  button.setAttribute("aria-expanded", "true");
  const detail = document.createElement("tr");
  detail.dataset.detail = "";
  const cell = document.createElement("td");
  cell.colSpan = row.children.length;
  cell.className = "opened";
  cell.textContent = "Reading …";
  detail.append(cell);
  row.after(detail);
  try {
    const reply = await fetch(row.querySelector("th a").href);
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const part = page.querySelector("[data-whole-message]");
    if (part) cell.replaceChildren(document.adoptNode(part));
    else cell.textContent = page.querySelector("main")?.textContent.trim() ?? "The console gave no answer.";
  } catch {
    cell.textContent = "The console does not answer.";
  }
}

function toggle(row) {
  if (detailOf(row)) close(row);
  else open(row);
}

for (const row of rows) {
  const button = row.querySelector("[data-open]");
  button.hidden = false;
  button.addEventListener("click", () => toggle(row));
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const inside = event.target.closest?.("[data-detail]")?.previousElementSibling;
    const opened = inside ?? rows.findLast(detailOf);
    if (opened && detailOf(opened) && !event.target.closest("input, textarea, select")) {
      close(opened);
      opened.querySelector("[data-open]").focus();
    }
  }
});
