// How far long jobs are, live: a card of each job has its texts and its bar changed in place. When
// one of them is over the page is loaded anew. Without this file a reload shows the same.

const first = document.querySelector("[data-jobs]");

function show(job) {
  const card = document.querySelector(`[data-job="${CSS.escape(job.id)}"]`);
  if (!card) return;
  for (const [name, text] of Object.entries(job.texts)) {
    const place = card.querySelector(`[data-text="${CSS.escape(name)}"]`);
    // What is read aloud when it changes must not be written again when it does not.
    if (place && place.textContent !== text) place.textContent = text;
    if (place && "hides" in place.dataset) place.hidden = text === "";
  }
  const bar = card.querySelector("progress");
  if (bar && typeof job.share === "number") bar.value = job.share;
}

if (first) {
  const source = new EventSource(first.dataset.jobs);
  source.addEventListener("jobs", (event) => JSON.parse(event.data).jobs.forEach(show));
  source.addEventListener("over", () => { source.close(); location.reload(); });
  window.addEventListener("pagehide", () => source.close());
}
