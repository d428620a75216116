// From the page's JSON to lines of charts: smoothing, wall time, bands over seeds.

// Points of a band: as many as a chart has pixels for.
const MOST = 400;

// The mean over `width` updates around each point, of what is known there. Long curves come with the means of their stretches.
function smoothed(curve, width) {
  const [steps, values] = curve.mean ? [curve.mean_step, curve.mean] : [curve.step, curve.y];
  const points = [];
  let [from, to, sum, known] = [0, 0, 0, 0];
  for (let n = 0; n < steps.length; n++) {
    for (; to < steps.length && steps[to] <= steps[n] + (width - 1) / 2; to++) {
      if (values[to] !== null) [sum, known] = [sum + values[to], known + 1];
    }
    for (; steps[from] < steps[n] - (width - 1) / 2; from++) {
      if (values[from] !== null) [sum, known] = [sum - values[from], known - 1];
    }
    points.push([steps[n], known ? sum / known : null]);
  }
  return points;
}

// The same points with seconds for steps.
function timed(clock, points) {
  const passed = clock.step.map((step, n) => [step, clock.seconds[n]]);
  const [first, last] = [passed[0][0], passed[passed.length - 1][0]];
  return points.map(([step, value]) => [valueAt(passed, Math.min(Math.max(step, first), last)), value]);
}

// Mean, lowest and highest of several curves, at the places where any of them has a point.
function banded(curves) {
  const all = [...new Set(curves.flatMap((points) => points.map((point) => point[0])))].sort((a, b) => a - b);
  const every = Math.max(1, Math.ceil(all.length / MOST));
  return all
    .filter((_, n) => n % every === 0 || n === all.length - 1)
    .map((at) => {
      const values = curves.map((points) => valueAt(points, at)).filter((value) => value !== null);
      if (!values.length) return [at, null];
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      const some = values.length < curves.length ? `${values.length} of ${curves.length} runs` : "";
      return [at, mean, Math.min(...values), Math.max(...values), some];
    });
}

// What a learning-curve chart shows. chosen: the page's settings; shown(run): whether the filter lets it through.
function curveChart(panel, data, chosen, shown, styleOf) {
  const byClock = chosen.across === "seconds";
  const width = Number(chosen.smooth);
  // A text's validation is measured now and then: nothing to smooth.
  const smooth = width > 1 && !panel.marked;
  const lines = panel.lines.flatMap((line) => {
    const runs = line.runs.filter((curve) => shown(curve.run) && (!byClock || data.clocks[curve.run]));
    if (!runs.length) return [];
    const placed = (curve, points) => (byClock ? timed(data.clocks[curve.run], points) : points);
    const raw = runs.map((curve) => placed(curve, curve.step.map((step, n) => [step, curve.y[n]])));
    const curves = smooth ? runs.map((curve) => placed(curve, smoothed(curve, width))) : raw;
    const points = curves.length > 1 ? banded(curves) : curves[0];
    const faint = smooth && curves.length === 1 ? raw : [];
    const hidden = chosen.hidden.includes(line.label);
    return [{ label: line.label, style: styleOf(line.label), hidden, points, faint, marked: panel.marked }];
  });
  const upLog = chosen["y-scale"] === "log";
  return {
    across: byClock ? "wall time (s)" : "training step",
    up: panel.measure === "Accuracy" ? "accuracy (%)" : `${panel.measure.toLowerCase()} (${panel.unit})`,
    acrossLog: chosen["x-scale"] === "log",
    upLog,
    low: upLog ? null : panel.low,
    high: panel.high,
    levels: panel.targets,
    trained: null,
    lines,
  };
}

// What a chart against length shows: of right answers in an exam, or of steps to a target. A line of an exam has no runs to be let through.
function lengthChart(exam, chosen, shown, styleOf) {
  const steps = exam.target !== undefined;
  const left = exam.lines.filter((line) => !line.runs.length || line.runs.some(shown));
  const lines = left.map((line) => ({
    label: line.label,
    style: styleOf(line.label),
    hidden: chosen.hidden.includes(line.label),
    points: steps ? line.steps : line[`${chosen.mode}.${chosen.part}`],
    faint: [],
    marked: true,
  }));
  return {
    across: steps ? "trained length" : "length",
    up: steps ? `steps to ${written(exam.target)} %` : "right answers (%)",
    acrossLog: chosen["length-scale"] === "log",
    upLog: steps && chosen["steps-scale"] === "log",
    low: steps && chosen["steps-scale"] === "log" ? null : 0,
    high: steps ? null : 100,
    levels: [],
    trained: exam.trained ?? null,
    lines: lines.filter((line) => line.points.length),
  };
}
