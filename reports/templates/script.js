"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  const openTarget = () => {
    let target = null;
    try { target = byId(decodeURIComponent(location.hash.slice(1))); } catch { return; }
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);
  if (location.hash) openTarget();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open]):not(.values):not(#definitions)")];
    for (const item of closed) item.open = true;
  });
  addEventListener("afterprint", () => { for (const item of closed) item.open = false; });

  const table = byId("verdict-rows");
  const bar = byId("verdict-filter");
  if (table && bar) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const text = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const fields = ["f-text", "f-status", "f-family", "f-required"].map(byId);
    const apply = () => {
      const words = fields[0].value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const keep = words.every((word) => text.get(row).includes(word))
          && (!fields[1].value || row.dataset.s === fields[1].value)
          && (!fields[2].value || row.dataset.f === fields[2].value)
          && (!fields[3].checked || "q" in row.dataset);
        row.hidden = !keep;
        if (keep) shown += 1;
      }
      byId("f-count").textContent = `${shown} of ${rows.length} rows`;
    };
    for (const field of fields) field.addEventListener("input", apply);
    bar.hidden = false;
    apply();
  }

  const key = (row, column) => {
    const cell = row.cells[column];
    const raw = cell.dataset.k ?? cell.textContent.trim();
    return raw !== "" && Number.isFinite(Number(raw)) ? Number(raw) : raw.toLowerCase();
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  for (const sortable of document.querySelectorAll("table.sortable")) {
    const heads = [...sortable.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      // Not a <button>: Chromium does not repeat a table head that holds one on each printed page.
      const button = document.createElement("span");
      button.setAttribute("role", "button");
      button.tabIndex = 0;
      button.append(...head.childNodes);
      const arrow = document.createElement("span");
      arrow.className = "arrow";
      button.firstChild.after(arrow);
      head.append(button);
      button.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); button.click(); }
      });
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = sortable.tBodies[0];
        const keyed = [...body.rows].map((row) => [key(row, column), row]);
        keyed.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
        body.append(...keyed.map((pair) => pair[1]));
      });
    });
  }

  const data = JSON.parse(byId("snapgate-data").textContent);
  const cell = (row, tag, value) => {
    const item = document.createElement(tag);
    item.textContent = value === null ? "not measured" : String(value);
    row.append(item);
    return item;
  };
  const xsOf = (panel, series) => {
    if ("x_of" in series) return xsOf(panel, panel.series[series.x_of]);
    if (!series.x_range) return series.x;
    const [first, last] = series.x_range;
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  };
  const ysOf = (series) => {
    if (!series.stamps) return series.y;
    return data.stamps[series.stamps[0]][series.stamps[1]].token_us.slice(1).map((us) => us / 1000);
  };
  const fill = (details, chart) => {
    for (const panel of chart.panels) for (const series of panel.series) {
      const ys = ysOf(series);
      if (!ys) continue;
      const box = document.createElement("div");
      box.className = "table";
      box.tabIndex = 0;
      const values = document.createElement("table");
      const caption = values.createCaption();
      caption.textContent = `${series.name}, n = ${series.n}` + (series.run_id ? `, run ${series.run_id}` : "");
      const head = values.createTHead().insertRow();
      cell(head, "th", chart.x.label + (chart.x.unit ? ` (${chart.x.unit})` : "")).scope = "col";
      cell(head, "th", `${panel.label} (${panel.unit})`).scope = "col";
      const more = [["low", "95 % low"], ["high", "95 % high"], ["n_each", "n"]].filter(([key]) => series[key]);
      for (const [, label] of more) cell(head, "th", label).scope = "col";
      const body = values.createTBody();
      xsOf(panel, series).forEach((x, index) => {
        const row = body.insertRow();
        cell(row, "td", x);
        cell(row, "td", ys[index]);
        for (const [name] of more) cell(row, "td", series[name][index]);
      });
      box.append(values);
      details.append(box);
    }
  };
  for (const details of document.querySelectorAll("details.values")) {
    const chart = data.charts[details.dataset.chart];
    if (!chart || !chart.panels) continue;
    details.hidden = false;
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) fill(details, chart);
    });
  }

  // A cross-hair over each chart, by pointer or arrow keys; the values under it are read out below.
  const nearest = (xs, wanted) => {
    let best = 0;
    xs.forEach((x, index) => { if (Math.abs(x - wanted) < Math.abs(xs[best] - wanted)) best = index; });
    return best;
  };
  for (const plot of document.querySelectorAll("svg.plot[data-left]")) {
    const figure = plot.closest("figure");
    const chart = data.charts[figure.id];
    if (!chart) continue;
    const { left, right, low, high } = Object.fromEntries(Object.entries(plot.dataset).map(([k, v]) => [k, Number(v)]));
    const lines = chart.panels.flatMap((panel) => panel.series.filter(ysOf)
      .map((series) => ({ name: series.name, unit: panel.unit, xs: xsOf(panel, series), ys: ysOf(series) })));
    if (!lines.length) continue;
    const cross = plot.querySelector(".cross");
    const readout = figure.querySelector(".readout");
    const longest = lines.reduce((a, b) => (b.xs.length > a.xs.length ? b : a));
    let at = 0;
    const show = (index) => {
      at = Math.max(0, Math.min(longest.xs.length - 1, index));
      const x = longest.xs[at];
      cross.setAttribute("transform", `translate(${left + ((x - low) / (high - low)) * (right - left)} 0)`);
      cross.setAttribute("visibility", "visible");
      const values = lines.map((line) => {
        const y = line.ys[nearest(line.xs, x)];
        return `${line.name}: ${y === null ? "not measured" : `${y} ${line.unit}`}`;
      });
      readout.textContent = `${chart.x.label} ${x}${chart.x.unit && ` ${chart.x.unit}`}: ${values.join("; ")}`;
    };
    plot.tabIndex = 0;
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const px = ((event.clientX - box.left) / box.width) * plot.viewBox.baseVal.width;
      show(nearest(longest.xs, low + ((px - left) / (right - left)) * (high - low)));
    });
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      show(at + step);
    });
    const hide = () => { cross.setAttribute("visibility", "hidden"); readout.textContent = ""; };
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
  }
})();
