// Messages as they come, the newest on top: a bounded number of rows, text only, and how many were
// skipped. Pausing closes the stream, so that nothing is asked of the cluster meanwhile.

const MOST_ROWS = 200;
const part = document.querySelector("[data-tail]");
const rows = part.querySelector("[data-tail-rows]");
const state = part.querySelector("[data-tail-state]");
const dot = part.querySelector("[data-tail-dot]");
const empty = part.querySelector("[data-tail-empty]");
const pause = part.querySelector("[data-tail-pause]");
let shown = 0, skipped = 0, source = null;

function say(words, live) {
  state.textContent = words;
  dot.classList.toggle("off", !live);
}

function span(text, kind) {
  const made = document.createElement("span");
  made.className = `value ${kind}`;
  made.textContent = text;
  return made;
}

function cell(kind, ...children) {
  const made = document.createElement("td");
  made.className = kind;
  made.append(...children);
  return made;
}

function row(message) {
  const made = document.createElement("tr");
  made.className = "fresh";
  const link = document.createElement("a");
  link.href = `${part.dataset.message}?partition=${message.partition}&offset=${message.offset}`;
  link.textContent = message.offset;
  const offset = document.createElement("th");
  offset.scope = "row";
  offset.className = "mono n";
  offset.append(link);
  const marks = message.marks.flatMap((mark) => {
    const badge = document.createElement("span");
    badge.className = "badge";
    badge.textContent = mark;
    return [badge, " "];
  });
  made.append(cell("mono n", message.partition), offset, cell("mono time", message.time), cell("key", span(message.key, message.key_kind)),
    cell("grow", ...marks, span(message.value, message.value_kind)));
  return made;
}

function status() {
  const words = `Live: ${shown.toLocaleString("en")} shown`;
  say(skipped ? `${words}, skipped ${skipped.toLocaleString("en")}` : words, true);
}

function add(frame) {
  skipped += frame.skipped;
  shown += frame.rows.length;
  if (frame.rows.length) empty.hidden = true;
  rows.prepend(...frame.rows.map(row).reverse());
  while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
  status();
}

function open() {
  say("Connecting …", false);
  source = new EventSource(part.dataset.tail);
  source.addEventListener("begun", status);
  source.addEventListener("quiet", status);
  source.addEventListener("messages", (event) => add(JSON.parse(event.data)));
  source.addEventListener("unread", (event) => {
    say(`Partitions ${JSON.parse(event.data).partitions.join(", ")} cannot be read now`, false);
  });
  source.addEventListener("failure", (event) => say(JSON.parse(event.data).sentence, false));
  source.addEventListener("error", () => say("No connection, trying again …", false));
}

function close(words) {
  if (source) source.close();
  source = null;
  say(words, false);
}

pause.addEventListener("click", () => {
  if (source) close("Paused");
  else open();
  pause.textContent = source ? "Pause" : "Go on";
});
window.addEventListener("pagehide", () => close("Closed"));
open();
