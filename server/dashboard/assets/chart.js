"use strict";
// Charts over time: points come a few at a time, and the oldest go.
const charts = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["soft", "line", "granted", "refused", "shadow", "spared", "accent", "granted-fill", "refused-fill", "shadow-fill", "spared-fill"].map((n) => [n, style.getPropertyValue("--" + n).trim()]));
  };
  const short = (n) => n == null ? "–" : n >= 1e6 ? +(n / 1e6).toPrecision(3) + " M" : n >= 1e4 ? +(n / 1e3).toPrecision(3) + " k" : n >= 100 ? String(Math.round(n)) : String(+n.toPrecision(3));
  const took = (us) => us == null || us === 0 ? "–" : us < 1000 ? +us.toPrecision(2) + " µs" : us < 1e6 ? +(us / 1e3).toPrecision(2) + " ms" : +(us / 1e6).toPrecision(2) + " s";
  const lists = ["granted", "refused", "spared", "shadow_refused", "p50", "p99"];
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
    const passed = rate(past.granted), spared = rate(past.spared), shadow = rate(past.shadow_refused), refused = rate(past.refused);
    const stack = [passed];
    for (const list of [spared, shadow, refused]) stack.push(list.map((n, i) => n + stack[stack.length - 1][i]));
    const called = (list) => list.map((us) => us === 0 ? null : us);
    return {
      decisions: [at, stack[3], stack[2], stack[1], stack[0]],
      rates: [null, refused, shadow, spared, passed],
      latency: [at, called(past.p99), called(past.p50)],
    };
  };

  const moment = (s) => {
    const at = new Date(s * 1000), two = (n) => String(n).padStart(2, "0");
    return two(at.getHours()) + ":" + two(at.getMinutes()) + (at.getSeconds() ? ":" + two(at.getSeconds()) : "");
  };
  const axes = (c, format, size) => {
    const axis = { stroke: c.soft, grid: { stroke: c.line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return [{ ...axis, grid: { show: false }, space: 70, size: 30, values: (_, ticks) => ticks.map(moment) }, { ...axis, size, values: (_, ticks) => ticks.map(format) }];
  };
  const options = (place, series, axes, fullest) => ({
    width: place.clientWidth, height: 220, padding: [8, 12, 0, 0], series, axes, legend: { live: true },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(fullest, (high || 0) * 1.1)] } },
    hooks: { init: [(u) => u.root.querySelectorAll("canvas").forEach((canvas) => canvas.setAttribute("aria-hidden", "true"))] },
  });
  const when = { label: "at", value: (_, s) => s == null ? "–" : moment(s) };

  const build = () => {
    const c = colours(), data = columns();
    for (const chart of drawn) chart.destroy();
    // Each covers what is drawn before it, so that only its own part is seen.
    const stacked = (label, name, index) => ({
      label, stroke: c[name], fill: c[name + "-fill"], width: 1, points: { show: false },
      value: (u, v, _, i) => i == null ? "–" : short(columns().rates[index][i]),
    });
    const line = (label, colour) => ({ label, stroke: colour, width: 2, points: { show: false }, spanGaps: true, value: (_, v) => took(v) });
    const decisions = document.getElementById("chart-decisions"), latency = document.getElementById("chart-latency");
    drawn = [
      new uPlot(options(decisions, [when, stacked("refused", "refused", 1), stacked("shadow", "shadow", 2), stacked("spared", "spared", 3), stacked("granted", "granted", 4)], axes(c, short, 46), 1), data.decisions, decisions),
      new uPlot(options(latency, [when, line("p99", c.accent), line("p50", c.granted)], axes(c, (us) => us === 0 ? "0" : took(us), 62), 10), data.latency, latency),
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
      granted: rate(past.granted), refused: rate(past.refused), spared: rate(past.spared), shadow: rate(past.shadow_refused),
      p50: worst(past.p50), p99: worst(past.p99), step: past.step,
    };
  };

  // line draws a minute of one limit, what passed and above it what did not.
  const spark = (passed, stopped) => {
    const ns = "http://www.w3.org/2000/svg", width = 120, height = 26;
    const svg = document.createElementNS(ns, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("class", "spark");
    svg.setAttribute("aria-hidden", "true");
    const n = Math.max((passed || []).length, (stopped || []).length);
    const low = Array.from({ length: n }, (_, i) => (passed || [])[i] || 0);
    const high = low.map((v, i) => v + ((stopped || [])[i] || 0));
    const top = Math.max(1, ...high);
    const area = (values, name) => {
      const path = document.createElementNS(ns, "path");
      const points = values.map((v, i) => `${(i * width / Math.max(1, n - 1)).toFixed(1)},${(height - v * (height - 2) / top).toFixed(1)}`);
      path.setAttribute("d", n ? `M0,${height}L${points.join("L")}L${width},${height}Z` : "");
      path.setAttribute("class", name);
      svg.append(path);
    };
    area(high, "stopped");
    area(low, "passed");
    return svg;
  };

  return {
    add, lately, spark, short, took,
    reset: (name) => { if (name !== view) { view = name; past = null; } },
    past: () => past,
  };
})();
