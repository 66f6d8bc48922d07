/* The data map: points on one canvas, the selected one on another in front of it; read by pointer, by keys, or as a table. */
"use strict";
(() => {
  const { data, find, color, unpack, onTheme } = mohs;
  if (!data.map) return;
  const { count, xLimit, x: xTitle, y: yTitle } = data.map;
  const [back, front, box] = ["map-points", "map-front", "map-box"].map(find);
  const kinds = data.verdicts;
  const css = (kind) => kind.replaceAll(" ", "-");
  const edge = { left: 58, right: 18, top: 18, bottom: 46 };
  const FULL = 65535, NONE = 255, REACH = 14, CELL = 24;
  let points = null, names = null, shown = new Set(kinds.keys()), only = "", at = -1, grid = new Map();

  const width = () => box.clientWidth, height = () => box.clientHeight;
  const px = (i) => edge.left + (points.x[i] / FULL) * (width() - edge.left - edge.right);
  const py = (i) => height() - edge.bottom - (points.y[i] / FULL) * (height() - edge.top - edge.bottom);
  const visible = (i) => shown.has(points.verdict[i]) && (only === "" || points.label[i] === Number(only));

  const sized = (canvas) => {
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width() * scale);
    canvas.height = Math.round(height() * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    return context;
  };

  const axes = (context) => {
    const [soft, line] = [color("soft"), color("line")];
    const right = width() - edge.right, bottom = height() - edge.bottom;
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.strokeStyle = line;
    context.fillStyle = soft;
    for (let step = 0; step <= 5; step += 1) {
      const x = edge.left + (step / 5) * (right - edge.left), y = bottom - (step / 5) * (bottom - edge.top);
      context.beginPath();
      context.moveTo(edge.left, y); context.lineTo(right, y);
      context.moveTo(x, bottom); context.lineTo(x, bottom + 4);
      context.stroke();
      context.textAlign = "right"; context.textBaseline = "middle";
      context.fillText(String(step / 5), edge.left - 8, y);
      context.textAlign = "center"; context.textBaseline = "top";
      context.fillText(String(+((step / 5) * xLimit).toPrecision(2)), x, bottom + 8);
    }
    context.fillText(`${xTitle} →`, (edge.left + right) / 2, bottom + 26);
    context.save();
    context.translate(16, (edge.top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.textBaseline = "middle";
    context.fillText(`${yTitle} →`, 0, 0);
    context.restore();
  };

  const draw = () => {
    if (!points) return;
    const context = sized(back);
    axes(context);
    grid = new Map();
    const size = Math.max(2.2, Math.min(5, 260 / Math.sqrt(count)));
    kinds.forEach((kind, verdict) => {
      context.fillStyle = color(css(kind));
      context.globalAlpha = kind === "easy" ? 0.45 : 0.75;
      const side = kind === "easy" ? size : size * 1.2;
      for (let i = 0; i < count; i += 1) {
        if (points.verdict[i] !== verdict || !visible(i)) continue;
        const x = px(i), y = py(i);
        context.fillRect(x - side / 2, y - side / 2, side, side);
        const key = Math.floor(x / CELL) * 4096 + Math.floor(y / CELL);
        const cell = grid.get(key);
        if (cell) cell.push(i); else grid.set(key, [i]);
      }
    });
    box.dataset.drawn = "yes";
    mark();
  };

  const mark = () => {
    const context = sized(front);
    if (at < 0 || !visible(at)) return;
    context.lineWidth = 2;
    context.strokeStyle = color("ink");
    context.fillStyle = color(css(kinds[points.verdict[at]]));
    context.beginPath();
    context.arc(px(at), py(at), 7, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  };

  const nearest = (x, y) => {
    let best = -1, least = REACH * REACH;
    for (let dx = -1; dx <= 1; dx += 1) for (let dy = -1; dy <= 1; dy += 1) {
      for (const i of grid.get((Math.floor(x / CELL) + dx) * 4096 + Math.floor(y / CELL) + dy) ?? []) {
        const far = (px(i) - x) ** 2 + (py(i) - y) ** 2;
        if (far < least) { least = far; best = i; }
      }
    }
    return best;
  };

  /* The nearest example that lies mostly in that direction, and far enough away to see the step. */
  const towards = (dx, dy) => {
    const x = px(at), y = py(at);
    let best = at, least = Infinity;
    for (let i = 0; i < count; i += 1) {
      if (!visible(i)) continue;
      const along = (px(i) - x) * dx + (py(i) - y) * dy;
      const aside = Math.abs((px(i) - x) * dy) + Math.abs((py(i) - y) * dx);
      if (along < 6 || aside > along) continue;
      if (along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    }
    return best;
  };

  const extreme = (sign) => {
    let best = -1;
    for (let i = 0; i < count; i += 1) if (visible(i) && (best < 0 || sign * points.y[i] > sign * points.y[best])) best = i;
    return best;
  };

  const name = (i) => (names ? names[i] : `example ${i}`);
  const words = (i) => {
    const sure = points.chance[i] > 99 ? "over 99%" : `${points.chance[i]}%`;
    const chance = points.chance[i] === NONE ? "" : ` (wrong label: ${sure})`;
    const predicted = data.shown[points.predicted[i]];
    const card = i in data.onMap ? " · Enter or a click opens it in the gallery" : "";
    return `${name(i)}: labeled ${data.shown[points.label[i]] ?? "(none)"}${predicted === undefined ? "" : `, predicted ${predicted}`} · `
      + `${kinds[points.verdict[i]]}${chance} · ${yTitle} ${(points.y[i] / FULL).toFixed(2)}, ${xTitle} ${((points.x[i] / FULL) * xLimit).toFixed(2)}${card}`;
  };

  const pick = (i, aloud) => {
    if (i < 0 || i === at) return;
    at = i;
    mark();
    find("map-reading").textContent = words(i);
    if (aloud) find("map-said").textContent = words(i);
  };

  const open = () => { if (at in data.onMap) mohs.openCard(data.onMap[at]); };
  front.addEventListener("pointermove", (event) => points && pick(nearest(event.offsetX, event.offsetY), false));
  front.addEventListener("click", (event) => { if (points && nearest(event.offsetX, event.offsetY) === at) open(); });
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  front.addEventListener("keydown", (event) => {
    if (!points || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") open();
    else if (event.key === "Home" || event.key === "End") pick(extreme(event.key === "Home" ? -1 : 1), true);
    else if (steps[event.key]) pick(at < 0 || !visible(at) ? extreme(-1) : towards(...steps[event.key]), true);
    else return;
    event.preventDefault();
  });
  document.querySelectorAll("[data-verdict]").forEach((input) => input.addEventListener("change", () => {
    if (input.checked) shown.add(Number(input.dataset.verdict)); else shown.delete(Number(input.dataset.verdict));
    draw();
  }));
  find("map-class").addEventListener("change", (event) => { only = event.target.value; draw(); });
  new ResizeObserver(draw).observe(box);
  onTheme(draw);

  (async () => {
    const bytes = await unpack("map-bytes");
    const at16 = (n) => new Uint16Array(bytes, 2 * n * count, count), at8 = (n) => new Uint8Array(bytes, (8 + n) * count, count);
    points = { x: at16(0), y: at16(1), label: at16(2), predicted: at16(3), verdict: at8(0), chance: at8(1) };
    draw();
    if (find("map-names")) names = JSON.parse(new TextDecoder().decode(await unpack("map-names")));
  })();
})();
