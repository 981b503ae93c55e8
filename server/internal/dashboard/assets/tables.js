"use strict";
// Shows the state as elements. Keys come from clients, so they are only ever text.
const tables = (() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const whole = (n) => n.toLocaleString("en").replaceAll(",", "\u202f");
  // put sets the text of an element only if it changes, so that a selection stays.
  const put = (element, words) => { if (element.textContent !== words) element.textContent = words; };
  const text = (id, words) => put(byId(id), words);
  // tag shows the mode of a limit that does not refuse all keys.
  const tag = (element, mode) => {
    element.hidden = !mode;
    put(element, mode || "");
  };

  // keyed replaces the items of a list but keeps those that are still there, with focus
  // and selection.
  const keyed = (list, items, name, build, fill) => {
    const known = new Map([...list.children].map((e) => [e.dataset.is, e]));
    const wanted = items.map((item) => {
      const is = name(item);
      let element = known.get(is);
      if (!element) {
        element = build(item);
        element.dataset.is = is;
      }
      fill(element, item);
      return element;
    });
    const kept = new Set(wanted);
    for (const element of [...list.children]) if (!kept.has(element)) element.remove();
    wanted.forEach((element, i) => { if (list.children[i] !== element) list.insertBefore(element, list.children[i] || null); });
  };

  // keyButton is a key that shows its state when clicked, if the admin API knows it.
  const keyButton = (k) => {
    if (!k.entries && !k.budget) return make("span", { class: "key", title: k.key }, k.label);
    const button = make("button", { type: "button", class: "key", title: k.key, "aria-label": `Show ${k.label} of ${k.domain}` }, k.label);
    button.addEventListener("click", () => keyForm.pick(k));
    return button;
  };

  const mean = (list, n) => list && list.length ? list.slice(-n).reduce((sum, v) => sum + v, 0) / Math.min(n, list.length) : 0;
  const percent = (part, all) => +(100 * part / all).toPrecision(3) + " %";
  // shares returns the sources of decisions, largest first.
  const shares = (counts) => {
    const names = Object.keys(counts).filter((n) => counts[n] > 0).sort((a, b) => counts[b] - counts[a]);
    const all = names.reduce((sum, n) => sum + counts[n], 0);
    return names.map((name) => ({ name, count: counts[name], share: percent(counts[name], all), about: counts[name] * 100 < all ? "<1 %" : Math.round(100 * counts[name] / all) + " %" }));
  };
  const limits = (state, pick) => {
    const cells = (row, l) => {
      const passed = mean(l.passed, 10), stopped = mean(l.stopped, 10), shadowed = mean(l.shadowed, 10), failed = mean(l.errors, 10), numbers = row.querySelectorAll(".n");
      row.children[1].replaceChildren(charts.spark([["passed", l.passed], ["shadowed", l.shadowed], ["stopped", l.stopped], ["failed", l.errors]]));
      [charts.short(passed + stopped + shadowed + failed), charts.short(stopped), charts.took(l.p50), charts.took(l.p99), whole(l.granted), whole(l.refused), whole(l.shadow_refused), whole(l.failed)].forEach((words, i) => put(numbers[i], words));
      numbers[1].classList.toggle("hot", stopped > 0);
      numbers[7].classList.toggle("hot", failed > 0);
      const by = shares(l.sources);
      put(row.lastElementChild, by.length === 1 ? by[0].name : by.map((s) => s.name + " " + s.about).join(", ") || "–");
      tag(row.querySelector(".tag"), l.mode);
    };
    const build = (l) => {
      const button = make("button", { type: "button", class: "key", "aria-label": `Show the traffic of ${l.domain} ${l.rule}` }, make("span", { class: "soft" }, l.domain + " "), l.rule, ...(l.budget ? [make("span", { class: "soft" }, " of " + l.budget)] : []));
      button.addEventListener("click", () => pick(l.domain, l.rule));
      return make("tr", {}, make("th", { scope: "row" }, button, make("span", { class: "tag" })), make("td", {}), ...Array.from({ length: 8 }, () => make("td", { class: "n" })), make("td", { class: "by" }));
    };
    const none = () => make("tr", { class: "none" }, make("td", { colspan: "11" }, "No rule has a limit."));
    const all = state.limits && state.limits.length ? state.limits : [{ none: true }];
    keyed(byId("limits"), all, (l) => l.none ? "" : l.domain + "\n" + l.rule, (l) => l.none ? none() : build(l), (row, l) => { if (!l.none) cells(row, l); });
    text("limits-left", state.limits_left ? `${whole(state.limits_left)} more limits with less traffic are not shown. ` : "");
  };

  const top = (id, keys, unit) => {
    const most = Math.max(1, ...keys.map((k) => k.count));
    const build = (k) => make("li", {}, make("span", { class: "fill" }), keyButton(k), make("span", { class: "soft rule" }, k.rule), make("span", { class: "tag" }), make("b", {}));
    const fill = (li, k) => {
      li.querySelector(".fill").style.width = 100 * k.count / most + "%";
      const b = li.querySelector("b");
      put(b, whole(k.count) + (k.error ? " ± " + whole(k.error) : ""));
      b.title = unit;
      li.classList.toggle("shadow", k.mode === "shadow");
      tag(li.querySelector(".tag"), k.mode);
    };
    const list = byId(id);
    keyed(list, keys.length ? keys : [{ none: true }], (k) => k.none ? "" : k.key, (k) => k.none ? make("li", { class: "none" }, "None yet.") : build(k), (li, k) => { if (!k.none) fill(li, k); });
  };

  const clock = (ms) => {
    const at = new Date(ms);
    return at.toLocaleTimeString([], { hour12: false }) + "." + String(at.getMilliseconds()).padStart(3, "0");
  };
  const duration = (ms) => ms < 0 ? "never" : ms < 1000 ? ms + " ms" : ms < 60e3 ? +(ms / 1e3).toPrecision(3) + " s" : ms < 3600e3 ? +(ms / 60e3).toPrecision(3) + " min" : +(ms / 3600e3).toPrecision(3) + " h";
  const maxTail = 200;
  const tail = (refusals) => {
    const body = byId("tail");
    if (!refusals || refusals.length === 0) return;
    body.querySelector(".none")?.remove();
    for (const r of refusals) {
      body.prepend(make("tr", {},
        make("td", {}, clock(r.at)), make("td", {}, keyButton(r)), make("td", {}, r.rule, ...(r.shadow ? [" ", make("span", { class: "tag" }, "shadow")] : [])),
        make("td", { class: "n" }, String(r.cost)), make("td", {}, r.source), make("td", { class: "n" }, duration(r.retry_after_ms))));
    }
    while (body.children.length > maxTail) body.lastElementChild.remove();
  };

  const palette = ["store", "lease", "deny_cache", "fallback", "fail_open", "fail_closed", "shadow", "limit", "error"];
  const sources = (counts) => {
    const by = shares(counts), bar = byId("sources");
    const colour = (s) => "source-" + (palette.includes(s.name) ? s.name : "other");
    keyed(bar, by, (s) => s.name, (s) => make("span", { class: colour(s) }), (e, s) => { e.style.flexGrow = s.count; });
    const words = by.map((s) => `${s.name} ${s.share}`).join(", ") || "No decisions in this time range";
    if (bar.getAttribute("aria-label") !== words) bar.setAttribute("aria-label", words);
    const legend = by.length ? by : [{ name: "" }];
    keyed(byId("sources-legend"), legend, (s) => s.name, (s) => s.name ? make("li", {}, make("i", { class: colour(s) }), s.name + " ", make("b", {})) : make("li", { class: "none" }, "No decisions in this time range."), (e, s) => { if (s.name) e.querySelector("b").textContent = `${whole(s.count)} (${s.share})`; });
  };

  const overrides = (state) => {
    const list = byId("overrides"), items = state.overrides.length ? state.overrides : [{ none: true }];
    const build = (o) => o.none ? make("li", { class: "hint" }, "None.") : make("li", {}, keyButton(o), " ", make("span", { class: o.limit === "blocked" ? "tag bad" : "tag" }, o.limit), make("span", { class: "soft" }));
    keyed(list, items, (o) => o.none ? "" : o.key + "\n" + o.limit, build, (li, o) => {
      if (!o.none) li.lastElementChild.textContent = " for " + duration(Math.max(0, o.until - state.at));
    });
  };

  const unmatched = (all) => {
    byId("unmatched-card").hidden = all.length === 0;
    keyed(byId("unmatched-list"), all, (u) => u.domain + "\n" + u.keys, (u) => make("tr", {}, make("th", { scope: "row" }, u.domain), make("td", {}, u.keys), make("td", {}), make("td", {})), (row, u) => {
      put(row.children[2], u.nearest || "–");
      put(row.children[3], clock(u.at).slice(0, 8));
    });
  };

  const dollars = (micro) => "$" + (micro / 1e6).toFixed(micro && micro < 1e6 ? 6 : 2);
  const models = (state) => {
    byId("models-card").hidden = state.models.length === 0;
    keyed(byId("models"), state.models, (m) => m.key + "\n" + m.model, (m) => make("tr", {}, make("th", { scope: "row" }, m.key), make("td", {}, m.model), ...Array.from({ length: 6 }, () => make("td", { class: "n" }))), (row, m) => {
      [whole(m.requests), whole(m.input), whole(m.cached), whole(m.output), m.priced ? dollars(m.usd) : "–", whole(m.streams)].forEach((words, i) => put(row.children[2 + i], words));
    });
    text("models-left", state.models_left ? `${whole(state.models_left)} more with fewer requests are not shown. ` : "");
  };

  // money writes small amounts exactly, and others in cents.
  const money = (micro) => "$" + (micro === 0 ? "0" : micro >= 1e6 ? (micro / 1e6).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }).replaceAll(",", "\u202f") : String(+(micro / 1e6).toFixed(6)));
  // until writes when a period ends: the time of a day, or the day.
  const until = (ms, now) => ms - now < 24 * 3600e3 ? new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false }) : new Date(ms).toLocaleDateString([], { day: "numeric", month: "short" });
  const spent = (state) => {
    byId("dollars-card").hidden = state.dollars.length === 0;
    const build = (b) => make("li", {}, make("p", { class: "whose" }, keyButton(b), make("span", { class: "soft" }), make("b", {})), make("div", { class: "gauge" }, make("span", {}), make("span", { class: "holding" })), make("p", { class: "hint" }));
    const fill = (li, b) => {
      const [whose, gauge, words] = li.children, all = Math.max(1, b.used + b.held + b.remaining);
      put(whose.children[1], (b.name === b.label ? "" : b.name + " ") + b.limit);
      put(whose.children[2], money(b.remaining) + " left");
      [b.used, b.held].forEach((n, i) => { gauge.children[i].style.width = 100 * n / all + "%"; });
      gauge.classList.toggle("full", b.remaining === 0);
      put(words, `${money(b.used)} used, ${money(b.held)} held` + (b.resets_at ? "; starts anew " + until(b.resets_at, state.at) : ""));
    };
    keyed(byId("dollars"), state.dollars, (kind) => kind.by, (kind) => make("div", {}, make("h4", {}, kind.by), make("ul", { class: "plain" }), make("p", { class: "hint" })), (element, kind) => {
      const [, list, left] = element.children;
      keyed(list, kind.all, (b) => b.key, build, fill);
      put(left, kind.left ? `${whole(kind.left)} more with less used are not shown.` : "");
    });
  };

  const leases = (state) => {
    byId("leases-card").hidden = state.leases.length === 0;
    keyed(byId("leases"), state.leases, (l) => l.domain + "\n" + l.label + "\n" + l.client, (l) => make("tr", {}, make("th", { scope: "row", title: l.rule || "no rule" }, make("span", { class: "soft" }, l.domain + " "), l.label), make("td", {}, l.client), ...Array.from({ length: 4 }, () => make("td", { class: "n" }))), (row, l) => {
      [l.rule ? whole(l.units) + (l.pending ? " …" : "") : "no rule", whole(l.spendable), l.demand < 0 ? "–" : charts.short(l.demand), duration(l.reported_ms)].forEach((words, i) => put(row.children[2 + i], words));
    });
    text("leases-left", state.leases_left ? `${whole(state.leases_left)} more are not shown. ` : "");
  };

  const nodes = (all) => {
    byId("nodes-card").hidden = all.length === 0;
    const bad = all.filter((n) => n.bad).length;
    text("nodes-count", bad ? `${bad} of ${all.length} unhealthy` : String(all.length));
    keyed(byId("nodes"), all, (n) => n.role + " " + n.address, (n) => make("tr", {}, make("th", { scope: "row" }, n.address), make("td", {}, n.role), make("td", {}, make("span", { class: "dot" }), make("span", {}))), (row, n) => {
      const [dot, words] = row.lastElementChild.children;
      dot.className = "dot " + (n.bad ? "bad" : "good");
      put(words, n.detail || "OK");
    });
  };

  const health = (state) => {
    keyed(byId("checks"), state.checks, (c) => c.name + c.ok + c.detail, (c) => make("li", {}, make("span", { class: "dot " + (c.ok ? "good" : "bad") }), c.name + ": " + (c.ok ? "OK" : c.detail)), () => {});
    keyed(byId("facts"), state.facts, (f) => f.name, (f) => make("div", {}, make("dt", {}, f.name), make("dd", {})), (e, f) => {
      const value = e.lastElementChild;
      put(value, f.value);
      value.classList.toggle("bad", Boolean(f.bad));
    });
    nodes(state.nodes || []);
  };

  return { byId, make, put, text, whole, keyed, mean, duration, limits, top, tail, sources, overrides, unmatched, models, spent, leases, health };
})();
