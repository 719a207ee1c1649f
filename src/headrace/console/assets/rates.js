// Rates of the overview, live. Names of topics go in as text, never as HTML.

const part = document.querySelector("[data-rates]");
const total = part.querySelector("[data-rates-total]");
const line = part.querySelector("[data-rates-line]");
const rows = part.querySelector("[data-rates-rows]");
const WIDTH = 240, HEIGHT = 48, KEPT = 60;

function short(number) {
  return number >= 100 || Number.isInteger(number) ? Math.round(number).toLocaleString("en") : number.toFixed(1);
}

function cell(text, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function row([topic, rate]) {
  const made = document.createElement("tr");
  const name = document.createElement("td");
  const link = document.createElement("a");
  link.href = `${document.documentElement.dataset.base}/topics/${encodeURIComponent(topic)}`;
  link.textContent = topic;
  name.append(link);
  made.append(name, cell(short(rate), "n"));
  return made;
}

function nothing() {
  const made = document.createElement("tr");
  const said = cell("Nothing is being written right now.", "quiet");
  said.colSpan = 2;
  made.append(said);
  return made;
}

function show({ total: sum, busiest, history }) {
  total.textContent = `${short(sum)} per second`;
  const highest = Math.max(...history, 1);
  const at = (value, i) => [
    ((KEPT - history.length + i) / (KEPT - 1)) * WIDTH, HEIGHT - 2 - (value / highest) * (HEIGHT - 6)];
  line.setAttribute("points", history.map((value, i) => at(value, i).map((n) => n.toFixed(1)).join(",")).join(" "));
  rows.replaceChildren(...(busiest.length ? busiest.map(row) : [nothing()]));
}

const source = new EventSource(part.dataset.rates);
source.addEventListener("rates", (event) => show(JSON.parse(event.data)));
source.addEventListener("failure", (event) => { total.textContent = JSON.parse(event.data).sentence; });
source.addEventListener("error", () => { total.textContent = "no connection, trying again …"; });
window.addEventListener("pagehide", () => source.close());
