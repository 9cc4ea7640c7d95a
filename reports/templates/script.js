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
  const fill = (details, chart) => {
    for (const panel of chart.panels) for (const series of panel.series) {
      const box = document.createElement("div");
      box.className = "table";
      box.tabIndex = 0;
      const values = document.createElement("table");
      const caption = values.createCaption();
      caption.textContent = `${series.name}, n = ${series.n}` + (series.run_id ? `, run ${series.run_id}` : "");
      const head = values.createTHead().insertRow();
      cell(head, "th", chart.x.label + (chart.x.unit ? ` (${chart.x.unit})` : "")).scope = "col";
      cell(head, "th", `${panel.label} (${panel.unit})`).scope = "col";
      const body = values.createTBody();
      series.x.forEach((x, index) => {
        const row = body.insertRow();
        cell(row, "td", x);
        cell(row, "td", series.y[index]);
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
})();
