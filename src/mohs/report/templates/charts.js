/* The charts: drawn by Vega when they come near the screen and redrawn when the colors change; their numbers as table and file. */
"use strict";
(() => {
  const { data, find, color, make, csv, download, onTheme } = mohs;
  const drawn = new Map();

  /* One color per hardness group, from easy to hard. */
  const ramp = (steps) => {
    const [low, high] = ["bin-low", "bin-high"].map((name) => color(name).match(/[\d.]+/g).map(Number));
    const share = (step) => (steps > 1 ? step / (steps - 1) : 1);
    return Array.from({ length: steps }, (_, step) => `rgb(${[0, 1, 2].map((i) => Math.round(low[i] + share(step) * (high[i] - low[i])))})`);
  };

  const config = (rows) => {
    const [ink, soft, line, sheet] = ["ink", "soft", "line", "sheet"].map(color);
    const heat = [color("heat-low"), color("heat-high")];
    const bins = ramp(new Set(rows.map((row) => row.bin)).size);
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent", font,
      view: { stroke: null },
      axis: { labelColor: soft, titleColor: soft, titleFontWeight: 400, labelFontSize: 11, titleFontSize: 12, gridColor: line, domainColor: line, tickColor: line, titlePadding: 8 },
      legend: { labelColor: ink, titleColor: soft, titleFontWeight: 400, labelFontSize: 12, orient: "top", labelLimit: 220 },
      range: { heatmap: heat, ramp: heat, ordinal: bins },
      rect: { stroke: sheet }, rule: { color: soft }, text: { color: ink },
    };
  };

  const draw = async (figure) => {
    const key = figure.dataset.figure;
    const { spec, rows } = data.figures[key];
    drawn.get(key)?.finalize();
    const options = { mode: "vega-lite", actions: false, ast: true, renderer: "svg", config: config(rows) };
    drawn.set(key, await vegaEmbed(figure.querySelector(".drawing"), { ...spec, datasets: { rows } }, options));
    figure.dataset.drawn = "yes";
  };

  const table = (rows) => {
    const names = Object.keys(rows[0]);
    const head = make("tr");
    head.append(...names.map((name) => make("th", name, { scope: "col" })));
    const body = rows.slice(0, 1000).map((row) => {
      const line = make("tr");
      line.append(...names.map((name) => make("td", typeof row[name] === "number" ? +row[name].toPrecision(4) : row[name])));
      return line;
    });
    const [top, rest, whole] = [make("thead"), make("tbody"), make("table")];
    top.append(head);
    rest.append(...body);
    whole.append(top, rest);
    return whole;
  };

  const figures = [...document.querySelectorAll("[data-figure]")];
  for (const figure of figures) {
    const { rows } = data.figures[figure.dataset.figure];
    const details = figure.querySelector("details");
    const fill = () => { const box = details.querySelector(".table-box"); if (details.open && !box.firstChild) box.append(table(rows)); };
    details.addEventListener("toggle", fill);
    fill();
    figure.querySelector("[data-csv]").addEventListener("click", () => {
      const names = Object.keys(rows[0]);
      download(`${figure.dataset.figure}.csv`, csv([names, ...rows.map((row) => names.map((name) => row[name]))]));
    });
  }
  if (typeof vegaEmbed === "undefined") return;
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) { watcher.unobserve(target); draw(target); }
    }
  }, { rootMargin: "800px" });
  figures.forEach((figure) => watcher.observe(figure));
  onTheme(() => figures.filter((figure) => figure.dataset.drawn).forEach(draw));
  addEventListener("beforeprint", () => figures.filter((figure) => !figure.dataset.drawn).forEach(draw));
})();
