// How far a redrive is, live; when it is over the page is loaded anew.

const part = document.querySelector("[data-job]");
if (part) {
  const sent = part.querySelector("[data-job-sent]");
  const source = new EventSource(part.dataset.job);
  source.addEventListener("jobs", (event) => {
    const [job] = JSON.parse(event.data).jobs;
    if (job) sent.textContent = job.sent.toLocaleString("en").replaceAll(",", "\u202f");
  });
  source.addEventListener("over", () => { source.close(); location.reload(); });
  window.addEventListener("pagehide", () => source.close());
}
