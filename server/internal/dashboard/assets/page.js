"use strict";
// Keeps the page up to date: one stream, one message per second.
(() => {
  const { byId, make, text } = tables;
  let source = null, span = "5m", chosen = ["", ""], rules = byId("rules-part").dataset.loaded, hold = false, retry = 0, silence = 0, at = 0;

  const figures = () => {
    const now = charts.lately(10);
    if (!now) return;
    const offered = now.granted + now.refused + now.not_charged + now.shadow + now.failed;
    text("offered", charts.short(offered));
    text("granted", charts.short(now.granted));
    text("refused", charts.short(now.refused));
    text("not-charged", charts.short(now.not_charged));
    text("shadow", charts.short(now.shadow));
    text("failed", charts.short(now.failed));
    byId("failed").classList.toggle("hot", now.failed > 0);
    text("share", now.refused ? `(${100 * now.refused < offered ? "<1" : Math.round(100 * now.refused / offered)}\u00a0%)` : "");
    text("p50", charts.took(now.p50));
    text("p99", charts.took(now.p99));
    text("tiles-hint", `Average of the last ${now.step > 10 ? "minute" : "ten seconds"}; a request under several limits charges each of them. Would refuse: limits in shadow mode.`);
    text("latency-of", chosen[1] ? `Latency of calls that charge ${chosen[1]}` : "Latency of all calls");
  };

  let unmatchedPast = [];
  // unmatched shows how many requests per second no rule applied to, over ten seconds.
  const unmatched = (state) => {
    unmatchedPast = [...unmatchedPast, [state.at, state.unmatched_total]].slice(-11);
    const [[from, before], [until, total]] = [unmatchedPast[0], unmatchedPast[unmatchedPast.length - 1]];
    if (until > from) { // one sample has no rate
      const rate = Math.max(0, total - before) * 1000 / (until - from);
      text("unmatched", charts.short(rate));
      byId("unmatched").classList.toggle("hot", rate > 0);
    }
    tables.unmatched(state.unmatched);
  };

  // reloadRules shows new rules.
  const reloadRules = async (loaded) => {
    if (String(loaded) === rules) return;
    rules = String(loaded);
    const response = await fetch("/dashboard/rules");
    if (response.ok) byId("rules-part").innerHTML = await response.text();
  };

  const limitsToPick = (limits) => {
    const select = byId("pick"), known = new Set([...select.options].map((o) => o.value));
    for (const l of limits) {
      const value = JSON.stringify([l.domain, l.rule]);
      if (!known.has(value)) select.append(make("option", { value }, l.domain + " " + l.rule));
    }
  };

  const dots = { healthy: "dot good", degraded: "dot fair" };
  // standing shows the state of the server in the header, and why it is not healthy.
  const standing = (state, reason) => {
    text("readiness", state);
    text("reason", reason);
    byId("reason").title = reason;
    byId("dot").className = dots[state] || "dot bad";
  };

  const show = (state) => {
    if (state.chart) {
      charts.add(state.chart);
      tables.sources(state.chart.sources);
      figures();
    }
    tables.limits(state, pick);
    budgets.show(state);
    limitsToPick(state.limits);
    tables.top("top-refused", state.refused, "times refused");
    tables.top("top-used", state.used, "units granted");
    tables.overrides(state);
    tables.models(state);
    tables.spent(state);
    tables.leases(state);
    unmatched(state);
    tables.health(state);
    if (!hold) tables.tail(state.refusals);
    text("missed", state.missed ? `${tables.whole(state.missed)} more are not shown.` : "");
    text("reload-error", state.reload_error || "");
    byId("reload").hidden = !state.reload_error;
    text("store-error", state.store_error || "");
    byId("store-out").hidden = !state.store_error;
    standing(state.state, state.reason || "");
    reloadRules(state.loaded);
  };

  // lost shows that the figures are old, unless a message comes first.
  const lost = (after, why) => {
    clearTimeout(silence);
    silence = setTimeout(() => {
      text("gone-title", why);
      text("gone-since", (at ? `The figures are from ${new Date(at).toLocaleTimeString([], { hour12: false })}. ` : "") + "Reconnecting …");
      byId("gone").hidden = false;
      document.body.classList.add("stale");
    }, after);
  };
  const found = () => {
    lost(6000, "The server has sent nothing for six seconds.");
    byId("gone").hidden = true;
    document.body.classList.remove("stale");
  };

  const connect = () => {
    clearTimeout(retry);
    if (source) source.close();
    charts.reset(span + chosen.join("\n"));
    source = new EventSource("/dashboard/events?" + new URLSearchParams({ span, domain: chosen[0], rule: chosen[1] }));
    source.onmessage = (message) => {
      const state = JSON.parse(message.data);
      at = state.at;
      text("live", "live");
      found();
      show(state);
    };
    source.onerror = () => {
      text("live", "not connected");
      standing("unreachable", "");
      lost(1000, "The server does not answer.");
      // A browser gives up where the server refuses: it may have room later, or
      // want a login.
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(again, 2000);
    };
  };
  const again = async () => {
    const response = await fetch("/v1/overrides").catch(() => null);
    if (response && response.status === 401) return location.reload();
    if (response && response.ok) lost(0, "Too many dashboards are open on this server.");
    connect();
  };

  const pick = (domain, rule) => {
    chosen = [domain, rule];
    byId("pick").value = rule ? JSON.stringify(chosen) : "";
    connect();
    byId("traffic").scrollIntoView();
  };
  byId("pick").addEventListener("change", (event) => {
    chosen = event.target.value ? JSON.parse(event.target.value) : ["", ""];
    connect();
  });
  const choices = document.querySelectorAll("[data-span]");
  for (const button of choices) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      for (const other of choices) other.setAttribute("aria-pressed", String(other === button));
      connect();
    });
  }
  byId("hold").addEventListener("click", (event) => {
    hold = !hold;
    event.target.setAttribute("aria-pressed", String(hold));
    event.target.textContent = hold ? "Resume" : "Pause";
  });
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
})();
