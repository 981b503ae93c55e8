"use strict";
// Shows budgets: what each class was granted, one on top of another, and what is left.
const budgets = (() => {
  const { byId, make, put, text, whole, keyed, mean } = tables;
  const { short, moment } = charts;
  const drawn = new Map(); // the chart of each list item, and what it shows
  let state = null;

  // measured reports whether something of the budget can be left: slots have no rate, and
  // several budgets of one name have one each.
  const measured = (b) => b.rate > 0 && !b.per_key;
  const added = (...lists) => lists[0].map((_, i) => lists.reduce((sum, list) => sum + ((list || [])[i] || 0), 0));
  // layers are the parts of the stack, from the top down.
  const layers = (b) => b.classes.flatMap((c, i) => [{ hue: i, list: c.units }, ...(b.shares ? [{ hue: i, hatched: true, list: c.borrowed || c.units.map(() => 0) }] : [])]).reverse();

  const columns = (b) => {
    const stack = [];
    for (const layer of layers(b).reverse()) stack.unshift(stack.length ? added(layer.list, stack[0]) : layer.list);
    const at = stack[0].map((_, i) => state.minute + i);
    if (!measured(b)) return [at, ...stack];
    return [at, stack[0].map((n) => Math.max(n, b.rate)), ...stack, at.map(() => b.rate)];
  };

  // hatch is a fill that is told from the plain colour without seeing colours.
  const hatch = (strong, light) => {
    const tile = document.createElement("canvas"), size = Math.round(6 * devicePixelRatio), pen = tile.getContext("2d");
    tile.width = tile.height = size;
    pen.fillStyle = light;
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = strong;
    pen.lineWidth = size / 3;
    pen.beginPath();
    for (const x of [-size, 0, size]) {
      pen.moveTo(x - 1, size + 1);
      pen.lineTo(x + size + 1, -1);
    }
    pen.stroke();
    return pen.createPattern(tile, "repeat");
  };

  const draw = (li, b) => {
    const place = li.querySelector(".chart"), data = columns(b);
    const is = JSON.stringify([place.clientWidth, devicePixelRatio, charts.dark.matches, measured(b), b.classes.map((c) => [c.rule, c.alternative])]);
    const known = drawn.get(li);
    if (known && known.is === is) return known.plot.setData(data);
    if (known) known.plot.destroy();
    place.replaceChildren();
    const c = charts.colours("card", "ink", "free-fill", ...b.classes.flatMap((_, i) => ["class-" + i, `class-${i}-fill`]));
    const area = (fill, width = 1) => ({ stroke: c.card, width, fill: () => fill, points: { show: false } });
    const stack = layers(b).map((l) => {
      const strong = c["class-" + l.hue];
      return area(l.hatched ? hatch(strong, c[`class-${l.hue}-fill`]) : strong);
    });
    const most = { range: (_, __, high) => [0, Math.max(1e-3, (high || 0) * 1.08)] };
    const series = measured(b) ? [{}, area(c["free-fill"], 0), ...stack, { stroke: c.ink, width: 2, dash: [6, 4], points: { show: false } }] : [{}, ...stack];
    const options = charts.options(place, series, charts.axes(c, figure(b), b.count === "usd" ? 70 : 46), most);
    const cursor = { ...options.cursor, points: { show: false } };
    const plot = new uPlot({ ...options, height: 196, padding: [8, 32, 0, 0], legend: { show: false }, cursor, hooks: { ...options.hooks, setCursor: [() => fill(li)] } }, data, place);
    drawn.set(li, { is, plot });
  };

  // figure returns what writes the units of a budget: those of dollars are millionths.
  const figure = (b) => b.count === "usd" ? (n) => "$" + +((n || 0) / 1e6).toPrecision(3) : short;

  const swatch = (kind, hue) => make("i", { class: `part ${kind} class-${hue}` });
  // number is a cell for a figure, with the look of its part of the chart.
  const number = (look) => make("td", { class: "n" }, ...(look ? [look] : []), make("span", {}));
  // rows are in the order of the chart, from the top down.
  const rows = (b) => [...(measured(b) ? [{ free: true }] : []), ...b.classes.map((c, i) => ({ ...c, i })).reverse()];
  const detail = (b, r) => r.alternative ? "alternative " + r.alternative : r.guarantee || (b.shares && r.rule ? "no guarantee" : "");
  const head = (look, ...words) => make("th", { scope: "row" }, make("span", { class: "named" }, ...(look ? [look] : []), make("span", {}, ...words)));
  const row = (b, r) => {
    if (r.free) return make("tr", {}, head(make("i", { class: "part free" }), ""), ...(b.shares ? [number(), number()] : []), number());
    const name = [r.rule || "further classes", " ", make("span", { class: "soft" }, "")];
    if (!b.shares) return make("tr", {}, head(swatch("solid", r.i), ...name), number());
    return make("tr", {}, head(null, ...name), number(swatch("solid", r.i)), number(swatch("hatched", r.i)), number());
  };

  // fill writes the figures of the second that the pointer is at, else of the last ten.
  const fill = (li) => {
    const b = li.budget, amount = figure(b), plot = drawn.get(li)?.plot, at = plot?.cursor.idx;
    const now = (list) => at == null ? mean(list, 10) : (list || [])[at] || 0;
    const sum = (f) => b.classes.reduce((n, c) => n + f(c), 0);
    const units = sum((c) => now(c.units)), borrowed = sum((c) => now(c.borrowed)), free = Math.max(0, b.rate - units - borrowed);
    const left = state.instances > 1 ? "Rest" : "Free";
    put(li.querySelector("caption"), (b.count === "usd" ? "Dollars" : "Units") + " per second, " + (at == null ? "average of the last ten seconds" : "at " + moment(plot.data[0][at])));
    const tiles = li.querySelectorAll(".tiles > div");
    const tile = (i, name, value, of) => {
      put(tiles[i].querySelector("dt"), name);
      put(tiles[i].querySelector("b"), value);
      put(tiles[i].querySelector("span"), of);
    };
    tile(0, b.shares ? "Guaranteed" : "Granted", amount(units), " /s");
    tile(1, "Borrowed", amount(borrowed), " /s");
    tiles[1].hidden = !b.shares;
    tile(2, left, amount(free), ` /s of ${amount(b.rate)}`);
    tiles[2].hidden = !measured(b);
    const cells = (tr, ...figures) => [...tr.querySelectorAll(".n > span")].forEach((e, i) => put(e, figures[i]));
    keyed(li.querySelector("tbody"), rows(b), (r) => r.free ? "" : [r.i, r.rule, r.alternative].join("\n"), (r) => row(b, r), (tr, r) => {
      if (r.free) {
        put(tr.querySelector(".named span"), left);
        return b.shares ? cells(tr, "", "", amount(free)) : cells(tr, amount(free));
      }
      put(tr.querySelector(".soft"), detail(b, r));
      if (!b.shares) return cells(tr, amount(now(r.units)));
      cells(tr, r.guarantee ? amount(now(r.units)) : "–", amount(now(r.borrowed)), amount(now(r.units) + now(r.borrowed)));
      tr.querySelector(".solid").hidden = !r.guarantee;
    });
    const foot = li.querySelector("tfoot");
    foot.hidden = !measured(b);
    cells(foot, ...(b.shares ? [amount(units), amount(borrowed)] : []), amount(b.rate));
  };

  const notes = (b) => [
    ...(b.per_key ? [`Each combination of requested values has a budget of its own, ${b.limit}; what they leave free is not shown.`] : []),
    ...(measured(b) && state.instances > 1 ? [`Rest: free, or granted by the other instances; ${whole(state.instances)} share this store.`] : []),
  ].join(" ");

  const build = (b) => {
    const titles = b.shares ? ["Guaranteed", "Borrowed", "Sum"] : ["Granted"];
    const tile = () => make("div", {}, make("dt", {}), make("dd", {}, make("b", {}), make("span", { class: "soft" })));
    return make("li", {},
      make("h4", {}, make("span", { class: "soft" }, b.domain + " "), b.budget + " ", make("span", { class: "soft limit" })),
      make("dl", { class: "tiles" }, tile(), tile(), tile()),
      make("div", { class: "both" },
        make("div", { class: "chart", role: "img", "aria-label": `Chart of the units per second of the budget ${b.budget} by class; the table has the figures` }),
        make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Table of the budget ${b.budget}` },
          make("table", {}, make("caption", {}),
            make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Class"), ...titles.map((t) => make("th", { scope: "col", class: "n" }, t)))),
            make("tbody", {}),
            make("tfoot", {}, make("tr", {}, head(make("i", { class: "line" }), "Budget"), ...titles.map(() => number())))))),
      make("p", { class: "hint" }));
  };

  const show = (now) => {
    state = now;
    byId("budgets-card").hidden = state.budgets.length === 0;
    const list = byId("budgets");
    keyed(list, state.budgets, (b) => [b.domain, b.budget, Boolean(b.shares)].join("\n"), build, (li, b) => {
      li.budget = b;
      put(li.querySelector(".limit"), b.limit);
      const note = li.querySelector("p"), words = notes(b);
      put(note, words);
      note.hidden = !words;
    });
    // Charts are as wide as their places, so the places come first.
    for (const li of list.children) {
      draw(li, li.budget);
      fill(li);
    }
    for (const [li, { plot }] of drawn) {
      if (li.parentElement === list) continue;
      plot.destroy();
      drawn.delete(li);
    }
    text("budgets-left", state.budgets_left ? `${whole(state.budgets_left)} more budgets are not shown. ` : "");
  };
  const redraw = () => { if (state) for (const li of byId("budgets").children) draw(li, li.budget); };
  charts.dark.addEventListener("change", redraw);
  addEventListener("resize", () => requestAnimationFrame(redraw));

  return { show };
})();
