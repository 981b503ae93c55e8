"use strict";
// Charts over time: points come a few at a time, and the oldest go.
const charts = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colours = (...more) => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries([...more, "soft", "line", "granted", "refused", "shadow", "not_charged", "failed", "accent", "granted-fill", "refused-fill", "shadow-fill", "not_charged-fill", "failed-fill"].map((n) => [n, style.getPropertyValue("--" + n).trim()]));
  };
  const short = (n) => n == null ? "–" : n >= 1e6 ? +(n / 1e6).toPrecision(3) + " M" : n >= 1e4 ? +(n / 1e3).toPrecision(3) + " k" : n >= 100 ? String(Math.round(n)) : String(+n.toPrecision(3));
  const took = (ns) => {
    if (ns == null || ns === 0) return "–";
    for (const [unit, size] of [["ns", 1], ["µs", 1e3], ["ms", 1e6]]) if (ns < 999.5 * size) return +(ns / size).toPrecision(2) + " " + unit;
    return +(ns / 1e9).toPrecision(2) + " s";
  };
  const lists = ["granted", "refused", "not_charged", "shadow_refused", "failed", "p50", "p99"];
  let past = null, drawn = [], view = "";

  // add keeps what is new, or begins anew where it does not follow.
  const add = (news) => {
    const end = past && past.start + past.granted.length * past.step;
    if (!past || past.step !== news.step || end !== news.start) {
      if (past && news.granted.length === 0) return;
      past = { ...news };
    } else {
      for (const name of lists) past[name] = past[name].concat(news[name]).slice(-news.points);
      past.start = news.start + news.granted.length * news.step - past.granted.length * past.step;
      past.sources = news.sources;
    }
    past.points = news.points;
    draw();
  };

  const columns = () => {
    const at = past.granted.map((_, i) => past.start + i * past.step);
    const rate = (list) => list.map((n) => n / past.step);
    // Drawn on top of one another: what passed, then what did not.
    const passed = rate(past.granted), not_charged = rate(past.not_charged), shadow = rate(past.shadow_refused), refused = rate(past.refused), failed = rate(past.failed);
    const stack = [passed];
    for (const list of [not_charged, shadow, refused, failed]) stack.push(list.map((n, i) => n + stack[stack.length - 1][i]));
    const called = (list) => list.map((ns) => ns === 0 ? null : ns);
    return {
      decisions: [at, stack[4], stack[3], stack[2], stack[1], stack[0]],
      rates: [null, failed, refused, shadow, not_charged, passed],
      latency: [at, called(past.p99), called(past.p50)],
    };
  };

  const moment = (s) => {
    const at = new Date(s * 1000), two = (n) => String(n).padStart(2, "0");
    return two(at.getHours()) + ":" + two(at.getMinutes()) + (at.getSeconds() ? ":" + two(at.getSeconds()) : "");
  };
  const axes = (c, format, size, more) => {
    const axis = { stroke: c.soft, grid: { stroke: c.line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return [{ ...axis, grid: { show: false }, space: 50, size: 36, gap: 10, values: (_, ticks) => ticks.map(moment) }, { ...axis, size, values: (_, ticks) => ticks.map(format), ...more }];
  };
  // Times are between nanoseconds and seconds: one slow call must not flatten all others.
  const counted = { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.1)] };
  const tens = { distr: 3, log: 10, range: (_, low, high) => [10 ** Math.floor(Math.log10(low || 1e3)), 10 ** Math.ceil(Math.log10((high || 1e6) * 1.01))] };
  const powers = (_, __, low, high) => Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (___, i) => low * 10 ** i);
  const options = (place, series, axes, y) => ({
    width: place.clientWidth, height: 226, padding: [8, 24, 0, 0], series, axes, legend: { live: true },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, y },
    hooks: { init: [(u) => u.root.querySelectorAll("canvas").forEach((canvas) => canvas.setAttribute("aria-hidden", "true"))] },
  });
  // Where nobody points, the legend tells the last point.
  const last = (list) => list[list.length - 1];
  const when = { label: "at", value: (u, s) => u.data[0].length === 0 ? "–" : moment(s == null ? last(u.data[0]) : s) };

  const build = () => {
    const c = colours(), data = columns();
    const decisions = document.getElementById("chart-decisions"), latency = document.getElementById("chart-latency");
    for (const chart of drawn) chart.destroy();
    for (const place of [decisions, latency]) place.replaceChildren();
    // A line needs two points: one alone is drawn as a dot. Where nobody calls, nothing is drawn.
    const alone = { show: false, size: 6, filter: (u, i) => u.data[i].flatMap((v, at, all) => v != null && all[at - 1] == null && all[at + 1] == null ? [at] : []) };
    // Each covers what is drawn before it, so that only its own part is seen.
    const stacked = (label, name, index) => ({
      label, stroke: c[name], fill: c[name + "-fill"], width: 1, points: alone,
      value: (u, v, _, i) => short(i == null ? last(columns().rates[index]) : columns().rates[index][i]),
    });
    const line = (label, colour, index) => ({ label, stroke: colour, width: 2, points: alone, value: (u, v, _, i) => took(i == null ? last(u.data[index]) : v) });
    drawn = [
      new uPlot(options(decisions, [when, stacked("errors", "failed", 1), stacked("refused", "refused", 2), stacked("would refuse", "shadow", 3), stacked("not charged", "not_charged", 4), stacked("granted", "granted", 5)], axes(c, short, 46), counted), data.decisions, decisions),
      new uPlot(options(latency, [when, line("p99", c.accent, 1), line("p50", c.granted, 2)], axes(c, took, 62, { splits: powers }), tens), data.latency, latency),
    ];
  };
  const draw = () => {
    if (drawn.length === 0) return build();
    const data = columns();
    drawn[0].setData(data.decisions);
    drawn[1].setData(data.latency);
  };
  const redraw = () => { if (past) build(); };
  dark.addEventListener("change", redraw);
  let pending = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(redraw);
  });

  // lately is what came in the last seconds, on average.
  const lately = (seconds) => {
    if (!past) return null;
    const n = Math.max(1, Math.ceil(seconds / past.step));
    const rate = (list) => list.slice(-n).reduce((sum, k) => sum + k, 0) / (Math.min(n, list.length) * past.step || 1);
    const worst = (list) => Math.max(0, ...list.slice(-n));
    return {
      granted: rate(past.granted), refused: rate(past.refused), not_charged: rate(past.not_charged), shadow: rate(past.shadow_refused), failed: rate(past.failed),
      p50: worst(past.p50), p99: worst(past.p99), step: past.step,
    };
  };

  // spark draws the last minute of one limit, its layers from the bottom up.
  const spark = (layers) => {
    const ns = "http://www.w3.org/2000/svg", width = 120, height = 26;
    const svg = document.createElementNS(ns, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("class", "spark");
    svg.setAttribute("aria-hidden", "true");
    const n = Math.max(...layers.map(([, list]) => (list || []).length));
    let sum = Array(n).fill(0);
    const areas = layers.map(([name, list]) => [name, sum = sum.map((v, i) => v + ((list || [])[i] || 0))]);
    const top = Math.max(1, ...sum);
    const area = (values, name) => {
      const path = document.createElementNS(ns, "path");
      const points = values.map((v, i) => `${(i * width / Math.max(1, n - 1)).toFixed(1)},${(height - v * (height - 2) / top).toFixed(1)}`);
      path.setAttribute("d", n ? `M0,${height}L${points.join("L")}L${width},${height}Z` : "");
      path.setAttribute("class", name);
      svg.append(path);
    };
    // Each area covers the lower part of the one before.
    for (const [name, values] of areas.reverse()) area(values, name);
    return svg;
  };

  return {
    add, lately, spark, short, took, moment, colours, axes, options, dark,
    reset: (name) => { if (name !== view) { view = name; past = null; } },
    past: () => past,
  };
})();
