"use strict";
// Shows /openapi.json. Texts are set as text, never as markup.
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function shown(method, path, operation) {
  const article = element("article");
  article.append(element("code", method.toUpperCase(), "method"), element("code", path));
  article.append(element("div", operation.summary, "more"));
  const asked = (operation.parameters || []).filter((p) => p.in !== "path").map((p) => p.name);
  if (asked.length) article.append(element("div", "May say: " + asked.join(", "), "more"));
  const kinds = Object.keys((operation.requestBody || {content: {}}).content);
  if (kinds.length) article.append(element("div", "Takes: " + kinds.join(", "), "more"));
  return article;
}
async function show() {
  const main = document.getElementById("requests");
  const answer = await fetch("/openapi.json");
  const api = await answer.json();
  const tags = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags[0];
      if (!tags.has(tag)) {
        const section = element("section");
        section.append(element("h2", tag));
        tags.set(tag, section);
      }
      tags.get(tag).append(shown(method, path, operation));
    }
  }
  main.replaceChildren(...tags.values());
  main.setAttribute("aria-busy", "false");
}
show().catch((failure) => {
  document.getElementById("requests").textContent = "The document could not be read: " + failure;
});
