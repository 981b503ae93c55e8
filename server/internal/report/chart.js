"use strict";
(() => {
  const palettes = {
    light: ["#2563eb", "#ea580c", "#16a34a", "#9333ea", "#0891b2", "#ca8a04", "#db2777", "#64748b"],
    dark: ["#60a5fa", "#fb923c", "#4ade80", "#c084fc", "#22d3ee", "#facc15", "#f472b6", "#94a3b8"],
  };
  const charts = JSON.parse(document.getElementById("charts").textContent) || [];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const two = (n) => String(n).padStart(2, "0");

  const elapsed = (s) => {
    const whole = Math.floor(s);
    if (s !== whole && s < 10) return s.toFixed(2) + "s";
    if (whole >= 7200) return Math.floor(whole / 3600) + ":" + two(Math.floor(whole / 60) % 60) + "h";
    return Math.floor(whole / 60) + ":" + two(whole % 60);
  };
  const clock = (s) => new Date(s * 1000).toISOString().slice(0, 19).replace("T", " ");
  const number = (v) => v == null ? "–" : v.toLocaleString("en").replaceAll(",", " ");

  // Seconds go by twelfths and sixtieths, not by tens.
  const steps = [.01, .05, .1, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

  const draw = (place, chart) => {
    const palette = dark.matches ? palettes.dark : palettes.light, warning = dark.matches ? "#f87171" : "#dc2626";
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
    const moment = chart.Clock ? clock : elapsed;
    const series = [{ label: "at", value: (_, v) => v == null ? "–" : moment(v) }];
    const data = [chart.X];
    let next = 0;
    chart.Series.forEach((s) => {
      const colour = s.Background ? "#8b949e" : palette[next++ % palette.length];
      series.push({
        label: s.Name, stroke: colour, width: 2, points: { show: false },
        fill: s.Background || chart.Series.length === 1 ? colour + "22" : undefined, value: (_, v) => number(v),
      });
      data.push(s.Values);
    });
    if (chart.Limit) {
      series.push({ label: "limit", stroke: warning, width: 1.5, dash: [6, 5], points: { show: false }, value: (_, v) => number(v) });
      data.push(chart.X.map(() => chart.Limit));
    }
    return new uPlot({
      width: place.clientWidth, height: 300, padding: [null, chart.Clock ? 70 : 28, null, null], series,
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.05)] } },
      axes: [
        { ...axis, incrs: steps, space: chart.Clock ? 130 : 70, values: (_, ticks) => ticks.map(moment) },
        { ...axis, size: 64, values: (_, ticks) => ticks.map(number) },
      ],
    }, data, place);
  };

  const all = () => {
    for (const place of document.querySelectorAll(".chart")) {
      place.replaceChildren();
      const chart = charts[Number(place.dataset.chart)];
      if (chart && chart.X && chart.X.length > 1) draw(place, chart);
    }
  };
  all();
  dark.addEventListener("change", all);
  let pending = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(all);
  });
})();
