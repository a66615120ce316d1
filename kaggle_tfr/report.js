"use strict";

// The gallery of clusters: pages, and the reader's decisions, which become overrides.csv.

const CLUSTERS_OF_PAGE = 12;

// Return rows of texts as CSV (RFC 4180); every text is written exactly.
function formatCsv(rows) {
  const quote = (text) =>
    /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  return rows.map((row) => row.map(quote).join(",") + "\r\n").join("");
}

// Return what a decision is about. A later one on the same subject replaces it.
function nameSubject([name, action, value]) {
  if (action === "keep" || action === "drop") return JSON.stringify(["keep", name]);
  const isPair = action === "same" || action === "different";
  return JSON.stringify(isPair ? ["pair", ...[name, value].sort()] : [action, name]);
}

function startGallery() {
  const find = (selector) => document.querySelector(selector);
  const gallery = find("#clusters");
  const bar = find("#decisions");
  const data = JSON.parse(find("#data").textContent);
  const earlier = data.decisions ?? []; // null: nothing can be decided here
  const decisions = new Map(earlier.map((decision) => [nameSubject(decision), decision]));
  const { rows } = data;
  const figures = [...gallery.querySelectorAll("figure")];
  let selected = []; // rows, at most two
  let isSaved = true;

  function decide(subject, decision) {
    if (decision) decisions.set(subject, decision);
    else decisions.delete(subject);
    isSaved = false;
    show();
  }

  // Without a decision, or with an earlier one, an image is as the run left it.
  function decideImage(row, action, value, isAsBefore) {
    const decision = [row.name, action, value];
    const subject = nameSubject(decision);
    const before = earlier.find((other) => nameSubject(other) === subject);
    decide(subject, isAsBefore ? before : decision);
  }

  function findAction(row) {
    const decision = decisions.get(nameSubject([row.name, "keep", ""]));
    return decision ? decision[1] : row.keep ? "keep" : "drop";
  }

  function findLabel(row) {
    const decision = decisions.get(nameSubject([row.name, "label", ""]));
    return decision ? decision[2] : row.label;
  }

  function addControls(figure, row) {
    const thumbnail = figure.querySelector(".thumbnail");
    thumbnail.addEventListener("click", () => {
      const others = selected.filter((other) => other !== row);
      selected = selected.includes(row) ? others : [...others.slice(-1), row];
      show();
    });
    if (row.keep !== null) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "action";
      button.addEventListener("click", () => {
        const action = findAction(row) === "keep" ? "drop" : "keep";
        decideImage(row, action, "", action === (row.keep ? "keep" : "drop"));
      });
      figure.querySelector(".action").replaceWith(button);
    }
    if (row.label !== null) {
      const input = document.createElement("input");
      input.className = "label";
      input.setAttribute("list", "classes");
      input.setAttribute("aria-label", "label");
      input.addEventListener("change", () => {
        const isAsBefore = input.value === row.label || input.value === "";
        decideImage(row, "label", input.value, isAsBefore);
      });
      figure.querySelector(".label").replaceWith(input);
    }
  }

  function showFigure(figure, row) {
    const isSelected = selected.includes(row);
    figure.querySelector(".thumbnail").setAttribute("aria-pressed", isSelected);
    if (row.keep !== null) {
      const action = findAction(row);
      const button = figure.querySelector(".action");
      figure.classList.toggle("dropped", action === "drop");
      button.textContent = action === "keep" ? "kept" : "dropped";
      button.classList.toggle("changed", row.keep !== (action === "keep"));
    }
    if (row.label !== null) {
      const input = figure.querySelector(".label");
      input.value = findLabel(row);
      input.classList.toggle("changed", input.value !== row.label);
    }
  }

  function showDecision([subject, [name, action, value]]) {
    const item = document.createElement("li");
    const undo = document.createElement("button");
    undo.type = "button";
    undo.textContent = "undo";
    undo.addEventListener("click", () => decide(subject, null));
    item.append(`${name}: ${action} ${value} `, undo);
    return item;
  }

  function showBar() {
    const count = decisions.size;
    bar.hidden = !data.decisions || (count === 0 && selected.length === 0);
    find("#pair").hidden = selected.length === 0;
    find("#selected").textContent = selected.map((row) => row.name).join(" and ");
    find("#same").disabled = find("#different").disabled = selected.length < 2;
    find("#count").textContent = `${count} ${count === 1 ? "decision" : "decisions"}`;
    find("#list").replaceChildren(...[...decisions].map(showDecision));
    find("#download").disabled = count === 0;
  }

  function show() {
    figures.forEach((figure, number) => showFigure(figure, rows[number]));
    showBar();
  }

  for (const action of ["same", "different"]) {
    find(`#${action}`).addEventListener("click", () => {
      const [first, second] = selected;
      const decision = [first.name, action, second.name];
      selected = [];
      decide(nameSubject(decision), decision);
    });
  }
  find("#download").addEventListener("click", () => {
    const csv = formatCsv([["image_id", "action", "value"], ...decisions.values()]);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = "overrides.csv";
    link.click();
    isSaved = true;
  });
  window.addEventListener("beforeunload", (event) => {
    if (!isSaved) event.preventDefault();
  });

  const allClusters = [...gallery.querySelectorAll(".cluster")];
  let clusters = allClusters; // those that the filter shows
  const topics = find("#topic");
  const pagers = [...gallery.querySelectorAll(".pager")];
  function showPage(first) {
    const end = Math.min(first + CLUSTERS_OF_PAGE, clusters.length);
    const displayed = clusters.slice(first, end);
    for (const cluster of allClusters) cluster.hidden = !displayed.includes(cluster);
    for (const pager of pagers) {
      const [previous, next] = pager.querySelectorAll("button");
      pager.hidden = clusters.length <= CLUSTERS_OF_PAGE;
      pager.querySelector("span").textContent =
        `clusters ${first + 1} to ${end} of ${clusters.length}`;
      previous.disabled = first === 0;
      next.disabled = end === clusters.length;
      previous.onclick = () => turnTo(first - CLUSTERS_OF_PAGE);
      next.onclick = () => turnTo(end);
    }
  }
  function filter(topic) {
    const isChosen = ({ dataset }) => dataset.topics.split(" ").includes(topic);
    clusters = allClusters.filter(isChosen);
    topics.value = topic;
    showPage(0);
  }
  // The findings above link topics: #conflicts, #leaks.
  function openTopic() {
    const topic = location.hash.slice(1);
    if (![...topics.options].some(({ value }) => value === topic)) return;
    filter(topic);
    gallery.scrollIntoView();
  }
  function turnTo(first) {
    showPage(first);
    gallery.scrollIntoView();
  }

  for (const name of data.classes) {
    const option = document.createElement("option");
    option.value = name;
    find("#classes").append(option);
  }
  for (const option of topics.options) {
    filter(option.value);
    option.textContent += ` (${clusters.length})`;
    option.disabled = clusters.length === 0;
  }
  topics.addEventListener("change", () => filter(topics.value));
  window.addEventListener("hashchange", openTopic);
  find(".filter").hidden = false;
  filter("copies");
  figures.forEach((figure, number) => addControls(figure, rows[number]));
  show();
  openTopic();
}

// A test calls the functions above without a page.
if (typeof document !== "undefined") startGallery();
