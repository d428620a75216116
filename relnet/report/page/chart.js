// One chart in SVG: axes, lines, bands; read by the pointer, by the arrow keys, or as a table. Knows nothing of runs.
//
// A chart is drawn from
//   {across, up, acrossLog, upLog, low, high, levels: [y], trained, lines}
// where low and high, if not null, are the ends of the axis up, levels and trained places of rules, and a line is
//   {label, style, hidden, points: [[x, y, lowest, highest, note]], faint: [[[x, y]]], marked}.

const HEIGHT = 300;
const MARGIN = { top: 12, right: 14, bottom: 44 };
const DASHES = ["", "7 3", "10 3 2 3", "3 2.5", "14 3 4 3 4 3"];
const COLOURS = 7;
const ROWS_IN_TABLE = 24;
const ROWS_IN_TIP = 14;

function make(name, attributes = {}, ...content) {
  return fill(document.createElement(name), attributes, content);
}

function draw(name, attributes = {}, ...content) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, content);
}

function fill(node, attributes, content) {
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...content);
  return node;
}

const ROUNDED = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4 });
const LONG = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 7 });

function written(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
  return (size >= 1000 ? LONG : ROUNDED).format(value);
}

function linearTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) ticks.push(n * step + 0);
  return ticks;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  const factors = decades > count / 2 ? [1] : decades > 1 ? [1, 3] : [1, 2, 3, 5, 7];
  const every = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) ticks.push(...factors.map((factor) => factor * 10 ** power));
  }
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return inside.length > 1 ? inside : linearTicks(low, high, count).filter((tick) => tick > 0);
}

function scale(low, high, log, from, to) {
  const turned = log ? Math.log : (value) => value;
  const [start, end] = [turned(low), turned(high)];
  return (value) => from + ((turned(value) - start) / (end - start)) * (to - from);
}

// The ends of an axis: of what is drawn, unless they are told.
function ends(values, log, low, high) {
  let least = Infinity;
  let most = -Infinity;
  for (const value of values) {
    if (value === null || (log && value <= 0)) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  if (least === Infinity) return log ? [0.1, 1] : [0, 1];
  if (log) return least === most ? [least / 2, most * 2] : [least, high ?? most];
  if (least === most) [least, most] = [least - 0.5, most + 0.5];
  const room = (most - least) * 0.05;
  return [low ?? least - room, high ?? most + room];
}

function colour(style) {
  return `var(--line-${style % COLOURS})`;
}

function dash(style) {
  return DASHES[style % DASHES.length] || null;
}

// The value of a line at x, between its points; null outside of it.
function valueAt(points, x) {
  let [left, right] = [0, points.length - 1];
  if (right < 0 || x < points[0][0] || x > points[right][0]) return null;
  while (right - left > 1) {
    const middle = (left + right) >> 1;
    if (points[middle][0] <= x) left = middle;
    else right = middle;
  }
  const [a, b] = [points[left], points[right]];
  if (x === a[0] || a === b) return a[1];
  if (x === b[0]) return b[1];
  if (a[1] === null || b[1] === null) return null;
  return a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]);
}

function noteAt(points, x) {
  return points.find((point) => point[0] >= x)?.[4] ?? "";
}

// Makes a figure a chart; returns its plot and what draws it, so many pixels wide. toggled(label) is called where a name in the legend is pressed.
function chart(figure, toggled) {
  const caption = figure.querySelector("figcaption").textContent;
  const plot = make("div", { class: "plot", tabindex: "0", role: "slider", "aria-valuemin": "0", "aria-valuenow": "0" });
  const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: "" });
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Lines shown" });
  const table = make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": `Values: ${caption}` });
  const values = make("details", { class: "values" }, make("summary", {}, "Values as a table"), table);
  figure.append(plot, tip, legend, values);
  let told = null;
  let places = null;
  let cursor = -1;

  function visible() {
    return told.lines.filter((line) => !line.hidden && line.points.length);
  }

  function redraw(width, next = told) {
    told = next;
    const lines = visible();
    const points = lines.flatMap((line) => [...line.points, ...line.faint.flat()]);
    const heights = points.flatMap((point) => [point[1], point[2] ?? null, point[3] ?? null]);
    const [left, right] = ends(points.map((point) => point[0]), told.acrossLog, null, null);
    const [bottom, top] = ends(heights, told.upLog, told.low, told.high);
    const upTicks = (told.upLog ? logTicks : linearTicks)(bottom, top, 5);
    const margin = 34 + 7 * Math.max(...upTicks.map((tick) => written(tick).length), 1);
    // A little room at the sides, so that first and last points are seen whole.
    const x = scale(left, right, told.acrossLog, margin + 6, width - MARGIN.right - 6);
    const y = scale(bottom, top, told.upLog, HEIGHT - MARGIN.bottom, MARGIN.top);
    const at = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
    places = { lines, x, y, width, bottom, top, at };

    const picture = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" });
    // Between whole numbers, steps and lengths, there is nothing to mark.
    const whole = at.every(Number.isInteger);
    const acrossTicks = (told.acrossLog ? logTicks : linearTicks)(left, right, Math.max(3, Math.floor(width / 90)));
    const [floor, end] = [HEIGHT - MARGIN.bottom, width - MARGIN.right];
    const rule = (kind, x1, y1, x2, y2) => picture.append(draw("line", { class: kind, x1, x2, y1, y2 }));
    const label = (text, kind, anchor, place) => picture.append(draw("text", { class: kind, "text-anchor": anchor, ...place }, text));
    for (const tick of upTicks) {
      rule("grid", margin, y(tick), end, y(tick));
      label(written(tick), "tick", "end", { x: margin - 7, y: y(tick) + 4 });
    }
    for (const tick of acrossTicks.filter((tick) => !whole || Number.isInteger(tick))) {
      rule("grid", x(tick), MARGIN.top, x(tick), floor);
      label(written(tick), "tick", "middle", { x: x(tick), y: floor + 17 });
    }
    rule("axis", margin, floor, end, floor);
    label(told.across, "name", "middle", { x: (margin + end) / 2, y: HEIGHT - 6 });
    label(told.up, "name", "middle", { transform: `translate(12 ${HEIGHT / 2 - 16}) rotate(-90)` });
    for (const level of told.levels.filter((level) => level >= bottom && level <= top)) {
      rule("level", margin, y(level), end, y(level));
      label(`${written(level)} %`, "tick", "start", { x: margin + 6, y: y(level) + 14 });
    }
    if (told.trained && told.trained >= left && told.trained <= right) {
      rule("level", x(told.trained), MARGIN.top, x(told.trained), floor);
    }
    for (const line of lines) drawLine(picture, line, places);
    picture.append(draw("g", { class: "cursor" }));
    plot.replaceChildren(picture);
    drawLegend();
    cursor = Math.min(cursor, places.at.length - 1);
    plot.setAttribute("aria-valuemax", Math.max(0, places.at.length - 1));
    plot.setAttribute("aria-label", summary());
    plot.setAttribute("aria-valuetext", "Arrow keys read the values");
    if (values.open) drawTable();
  }

  function drawLine(picture, line, { x, y, bottom, top }) {
    const ink = { stroke: colour(line.style), "stroke-dasharray": dash(line.style) };
    // What lies beyond an axis with a logarithm, or cannot lie on it, is held at its end.
    const held = (value) => Math.min(Math.max(value, bottom), top);
    const drawn = (points) => {
      let [path, broken] = ["", true];
      for (const [across, up] of points) {
        const gap = up === null || (told.upLog && up <= 0) || (told.acrossLog && across <= 0);
        if (!gap) path += `${broken ? "M" : "L"}${x(across).toFixed(1)} ${y(held(up)).toFixed(1)}`;
        broken = gap;
      }
      return path;
    };
    const area = line.points.filter((point) => (point[2] ?? null) !== null && !(told.acrossLog && point[0] <= 0));
    if (area.length > 1) {
      const edge = (which) => (point) => `${x(point[0]).toFixed(1)} ${y(held(point[which])).toFixed(1)}`;
      const outline = [...area.map(edge(3)), ...area.toReversed().map(edge(2))];
      picture.append(draw("path", { class: "band", d: `M${outline.join("L")}Z`, fill: colour(line.style) }));
    }
    for (const points of line.faint) picture.append(draw("path", { class: "faint", d: drawn(points), ...ink, "stroke-dasharray": null }));
    picture.append(draw("path", { class: "line", d: drawn(line.points), ...ink }));
    if (line.marked || line.points.length === 1) {
      for (const [across, up] of line.points) {
        if (up === null || (told.upLog && up <= 0)) continue;
        picture.append(draw("circle", { cx: x(across), cy: y(held(up)), r: 3, fill: colour(line.style) }));
      }
    }
  }

  function swatch(line) {
    const stroke = draw("line", { x1: 1, x2: 27, y1: 5, y2: 5, stroke: colour(line.style), "stroke-dasharray": dash(line.style) });
    return draw("svg", { width: 28, height: 10, viewBox: "0 0 28 10", "aria-hidden": "true" }, stroke);
  }

  function drawLegend() {
    const focused = [...legend.children].indexOf(document.activeElement);
    legend.replaceChildren(
      ...told.lines.map((line) => {
        const button = make("button", { type: "button", "aria-pressed": String(!line.hidden) }, swatch(line), ` ${line.label}`);
        button.addEventListener("click", () => toggled(line.label));
        return button;
      }),
    );
    if (focused >= 0) legend.children[focused]?.focus();
  }

  function summary() {
    const lines = places.lines.slice(0, 8).map((line) => {
      const known = line.points.filter((point) => point[1] !== null);
      if (!known.length) return `${line.label}: no values`;
      const [first, last] = [known[0], known[known.length - 1]];
      return `${line.label} from ${written(first[1])} at ${written(first[0])} to ${written(last[1])} at ${written(last[0])}`;
    });
    const more = places.lines.length > 8 ? `; and ${places.lines.length - 8} more` : "";
    return `Chart of ${caption} against ${told.across}. ${places.lines.length} lines. ${lines.join("; ")}${more}.`;
  }

  function drawTable() {
    const every = Math.max(1, Math.ceil(places.at.length / ROWS_IN_TABLE));
    const chosen = places.at.filter((_, n) => n % every === 0 || n === places.at.length - 1);
    const titles = [told.across, ...places.lines.map((line) => line.label)];
    const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
    const body = chosen.map((at) => {
      const cells = places.lines.map((line) => make("td", { class: "number" }, written(valueAt(line.points, at))));
      return make("tr", {}, make("th", { scope: "row" }, written(at)), ...cells);
    });
    table.replaceChildren(make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function point(next) {
    if (!places?.at.length) return;
    cursor = Math.max(0, Math.min(places.at.length - 1, next));
    const { x, y, width, bottom, top } = places;
    const at = places.at[cursor];
    const read = places.lines
      .map((line) => ({ line, value: valueAt(line.points, at), note: noteAt(line.points, at) }))
      .filter((one) => one.value !== null)
      .sort((a, b) => b.value - a.value);
    const mark = plot.querySelector(".cursor");
    mark.replaceChildren(draw("line", { x1: x(at), x2: x(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    for (const { line, value } of read) {
      if (told.upLog && value <= 0) continue;
      const cy = y(Math.min(Math.max(value, bottom), top));
      mark.append(draw("circle", { cx: x(at), cy, r: 3.5, fill: colour(line.style) }));
    }
    const rows = read.slice(0, ROWS_IN_TIP).map(({ line, value, note }) => {
      const name = line.label + (note ? ` (${note})` : "");
      return make("tr", {}, make("td", {}, swatch(line)), make("th", {}, name), make("td", { class: "number" }, written(value)));
    });
    const more = read.length > ROWS_IN_TIP ? [make("p", {}, `and ${read.length - ROWS_IN_TIP} more`)] : [];
    tip.replaceChildren(make("p", {}, `${told.across}: ${written(at)}`), make("table", {}, ...rows), ...more);
    tip.hidden = false;
    // Of the figure's own pixels, on the side where there is room.
    const place = (x(at) / width) * plot.clientWidth + plot.offsetLeft;
    const leftward = x(at) > width / 2;
    tip.style.left = leftward ? "auto" : `${place + 14}px`;
    tip.style.right = leftward ? `${figure.clientWidth - place + 14}px` : "auto";
    tip.style.top = `${plot.offsetTop + 8}px`;
    plot.setAttribute("aria-valuenow", cursor);
    const said = read.map((one) => `${one.line.label} ${written(one.value)}`);
    plot.setAttribute("aria-valuetext", `${told.across} ${written(at)}: ${said.join(", ")}`);
  }

  function leave() {
    tip.hidden = true;
    plot.querySelector(".cursor")?.replaceChildren();
  }

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const across = ((event.clientX - box.left) / box.width) * places.width;
    let nearest = 0;
    places.at.forEach((at, n) => {
      if (Math.abs(places.x(at) - across) < Math.abs(places.x(places.at[nearest]) - across)) nearest = n;
    });
    point(nearest);
  });
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    const stride = Math.max(1, Math.round((places?.at.length ?? 0) / 50));
    const [on, back] = [cursor + stride, cursor - stride];
    const moves = { ArrowRight: on, ArrowUp: on, ArrowLeft: back, ArrowDown: back, Home: 0, End: Infinity };
    if (event.key === "Escape") leave();
    else if (event.key in moves) {
      event.preventDefault();
      point(moves[event.key]);
    }
  });
  values.addEventListener("toggle", () => values.open && drawTable());
  return { plot, draw: redraw };
}
