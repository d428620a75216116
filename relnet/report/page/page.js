// The page: controls and what they are remembered by, tables that sort, the filter, copying, loading again.

const data = JSON.parse(document.getElementById("data").textContent);
const KEY = `relnet ${location.pathname}`;
const CHOICES = ["across", "x-scale", "y-scale", "smooth", "mode", "part", "length-scale", "steps-scale", "theme"];
const chosen = { hidden: [], filter: "", sorted: [], open: [], refresh: true, mode: "free_running", part: "exact", ...remembered() };
const styles = new Map();

// A browser may refuse to remember: then a page that loads again forgets.
function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  }
}

function remember() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(chosen));
  } catch {
    return;
  }
}

function styleOf(label) {
  if (!styles.has(label)) styles.set(label, styles.size);
  return styles.get(label);
}

const rows = [...document.querySelectorAll("tr[data-run]")];

// Phrases between commas: "causalrn, seed 0".
function shown(run) {
  const phrases = chosen.filter.toLowerCase().split(",");
  return phrases.every((phrase) => data.words[run].toLowerCase().includes(phrase.trim()));
}

// Every line has the style that it had at first, whatever is hidden.
for (const panel of data.curves) for (const line of panel.lines) styleOf(line.label);
for (const exam of data.lengths) for (const line of exam.lines) styleOf(line.label);

function toggled(label) {
  chosen.hidden = chosen.hidden.includes(label) ? chosen.hidden.filter((one) => one !== label) : [...chosen.hidden, label];
  update();
}

const charts = [
  ...data.curves.map((panel, n) => [`curve-${n}`, () => curveChart(panel, data, chosen, shown, styleOf)]),
  ...data.lengths.map((exam, n) => [`length-${n}`, () => lengthChart(exam, chosen, shown, styleOf)]),
].map(([id, told]) => ({ figure: document.getElementById(id), told }));
for (const one of charts) Object.assign(one, chart(one.figure, toggled));

// All widths are read before anything is drawn: between two drawings each reading would lay out the whole page.
function update() {
  const widths = charts.map((one) => one.plot.clientWidth);
  charts.forEach((one, n) => one.draw((one.width = widths[n]), one.told()));
  remember();
}

// Charts as wide as their place: on paper as on a screen.
const watcher = new ResizeObserver(() => {
  const widths = charts.map((one) => one.plot.clientWidth);
  charts.forEach((one, n) => one.width !== widths[n] && one.draw((one.width = widths[n])));
});

function filtered() {
  for (const row of rows) row.hidden = !shown(Number(row.dataset.run));
  for (const run of document.querySelectorAll("details.run")) run.hidden = !shown(Number(run.id.slice(4)));
  const count = document.getElementById("filtered");
  if (count) {
    const left = data.words.filter((_, run) => shown(run)).length;
    count.textContent = left === data.words.length ? "" : `${left} of ${data.words.length}`;
  }
}

function sort(table, column, direction) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, n) => (n === column ? head.setAttribute("aria-sort", direction) : head.removeAttribute("aria-sort")));
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => {
    const cell = row.cells[column];
    const text = cell.dataset.sort ?? cell.textContent;
    return text === "-" ? null : Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b) => {
    // What is missing stands last, whichever way.
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const body = table.tBodies[0];
  const sorted = [...body.rows].map((row) => ({ row, key: key(row) })).sort((a, b) => compare(a.key, b.key));
  body.append(...sorted.map((one) => one.row));
}

document.querySelectorAll("table.sortable").forEach((table, number) => {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      chosen.sorted = [...chosen.sorted.filter((one) => one[0] !== number), [number, column, direction]];
      sort(table, column, direction);
      remember();
    });
  });
  for (const [which, column, direction] of chosen.sorted) {
    if (which === number && column < table.tHead.rows[0].cells.length) sort(table, column, direction);
  }
});

for (const name of CHOICES) {
  const control = document.getElementById(name);
  if (!control) continue;
  if (chosen[name] !== undefined) control.value = chosen[name];
  chosen[name] = control.value;
  control.addEventListener("change", () => {
    chosen[name] = control.value;
    if (name === "theme") themed();
    update();
  });
}

function themed() {
  if (chosen.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen.theme;
}

const box = document.getElementById("filter");
if (box) {
  box.value = chosen.filter;
  box.addEventListener("input", () => {
    chosen.filter = box.value.trim();
    filtered();
    update();
  });
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // A page from a file may have no clipboard: the command is marked, to be copied by hand.
      getSelection().selectAllChildren(code);
      button.textContent = "Marked";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

const details = [...document.querySelectorAll("details.run")];
for (const one of details) {
  one.open = chosen.open.includes(one.id);
  one.addEventListener("toggle", () => {
    chosen.open = details.filter((other) => other.open).map((other) => other.id);
    remember();
  });
}

// A link to a run opens it.
function opened() {
  const run = document.getElementById(location.hash.slice(1));
  if (run?.matches("details.run")) {
    run.open = true;
    run.scrollIntoView();
  }
}
addEventListener("hashchange", opened);

if (data.refresh) {
  const pause = document.getElementById("refresh");
  pause.checked = chosen.refresh;
  pause.addEventListener("change", () => {
    chosen.refresh = pause.checked;
    remember();
  });
  setInterval(() => {
    // Not under the hands of somebody who reads a chart or types.
    const busy = document.activeElement?.matches("input[type=search], select, .plot") || document.querySelector(".tip:not([hidden])");
    if (chosen.refresh && !busy && !document.hidden) location.reload();
  }, 1000 * data.refresh);
}

themed();
filtered();
update();
opened();
for (const one of charts) watcher.observe(one.plot);
document.documentElement.dataset.ready = "";
