/* The map: a scatter of up to millions of points to pan, zoom, pick from and select from by lasso.
 *
 * Drag pans, the wheel or two fingers zoom, Shift and drag (or the lasso button) selects; a click picks a point. With the keyboard:
 * arrows pan, + and - zoom, 0 shows all points, Enter selects what is in view, Escape clears the selection. */

import { canvasPainter, webglPainter } from "./painters.js";
import { inside, nearest } from "./polygon.js";

const REACH = 8, CLICK = 4, MARGIN = 24, CLOSEST = 2000, SETTLE = 150, SLOW = 50, FEWEST = 50_000;
const NOTHING = new Uint32Array(0), UNPLACED = 0xffffffff;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Fill an element with a map.
 *
 * @param {HTMLElement} container has a size; its text color and background are the map's
 * @param {object} options
 * @param {Float32Array} options.x coordinates; a point with NaN is not shown
 * @param {Float32Array} options.y
 * @param {Uint8Array} options.color index of the palette for each point
 * @param {string[]} options.palette CSS colors, at most 256; var() and light-dark() follow the page's theme
 * @param {(indices: Uint32Array) => void} [options.onSelect] after a lasso, Enter or Escape; ascending
 * @param {(index: number) => void} [options.onHover] the point under the pointer, or -1
 * @param {(index: number) => void} [options.onPick] after a click on a point
 * @param {"webgl2" | "canvas"} [options.renderer] default: WebGL with a graphics card, else the canvas
 */
export function createMap(container, { x, y, color, palette, onSelect, onHover, onPick, renderer }) {
  const order = shuffled(x, y), bounds = extent(x, y, order), everyone = order.map((_, rank) => rank);
  const rankOf = inverse(order, x.length);
  const scene = { x: taken(x, order), y: taken(y, order), color: taken(color, order), shown: everyone, chosen: NOTHING };
  const view = { x: 0, y: 0, scale: 1 };
  const pointers = new Map();
  let mask = null, fitted = 1, gesture = null, path = [], moved = 0, hovered = -1, lassoing = false;
  let budget = Infinity, moving = 0, requested = 0, stale = true, began = 0, drawing = 0, painter = null, back = null;

  const box = element("div", { position: "relative", width: "100%", height: "100%", overflow: "hidden" });
  const front = element("canvas", { position: "absolute", inset: "0", width: "100%", height: "100%", touchAction: "none", cursor: "grab" });
  const bar = element("div", { position: "absolute", top: "8px", right: "8px", display: "flex", gap: "4px" });
  front.tabIndex = 0;
  front.setAttribute("role", "application");
  front.setAttribute("aria-label", `Map of ${order.length.toLocaleString("en")} examples. Arrow keys pan, plus and minus zoom, 0 shows all, `
    + "Enter selects the examples in view, Escape clears the selection.");
  const lassoButton = button("Lasso", "Select by drawing around points (or hold Shift and drag)", () => setLasso(!lassoing));
  bar.append(lassoButton, button("+", "Zoom in", () => zoom(1.6)), button("−", "Zoom out", () => zoom(1 / 1.6)), button("Fit", "Show all points", fit));
  box.append(front, bar);
  container.append(box);

  const ratio = () => devicePixelRatio || 1;
  const toData = (px, py) => [view.x + (px - box.clientWidth / 2) / view.scale, view.y - (py - box.clientHeight / 2) / view.scale];
  const toScreen = (i) => [box.clientWidth / 2 + (x[i] - view.x) * view.scale, box.clientHeight / 2 - (y[i] - view.y) * view.scale];
  const side = () => {
    const near = Math.min(4, Math.max(1, view.scale / fitted) ** 0.35);
    return Math.max(1, Math.min(5, 260 / Math.sqrt(scene.shown.length || 1)) * near, 1.4 * near) * ratio();
  };

  /* Drawing: one picture per animation frame, and a part of the points while the view moves if all of them take too long. */
  const redraw = () => { stale = true; requested ||= requestAnimationFrame(frame); };
  const frame = (now) => {
    requested = 0;
    if (!painter.done()) { requested = requestAnimationFrame(frame); return; }
    if (drawing) finished(now);
    if (!stale || !box.clientWidth || !box.clientHeight) return;
    stale = false;
    const count = Math.min(scene.shown.length, moving ? budget : Infinity);
    drawing = count || 1;
    began = performance.now();
    painter.paint({ x: view.x, y: view.y, scale: view.scale * ratio() }, count, side());
    if (painter.done()) finished(performance.now());
    else requested = requestAnimationFrame(frame);
    sketch();
  };
  const finished = (now) => {
    const took = Math.max(1, now - began);
    if (took > SLOW || drawing < scene.shown.length) budget = Math.max(FEWEST, Math.round(drawing * (SLOW / 2) / took));
    if (drawing >= scene.shown.length) container.dataset.drawn = scene.shown.length;
    drawing = 0;
  };
  const move = () => {
    clearTimeout(moving);
    moving = setTimeout(() => { moving = 0; redraw(); }, SETTLE);
    redraw();
  };

  /* The lasso and the ring around the hovered point, on the canvas in front. */
  const sketch = () => {
    const context = front.getContext("2d"), { color: ink } = getComputedStyle(container);
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.clearRect(0, 0, box.clientWidth, box.clientHeight);
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = 1.5;
    if (hovered >= 0) {
      context.beginPath();
      context.arc(...toScreen(hovered), 7, 0, 2 * Math.PI);
      context.stroke();
    }
    if (path.length < 4) return;
    context.beginPath();
    for (let k = 0; k < path.length; k += 2) context.lineTo(path[k], path[k + 1]);
    context.closePath();
    context.globalAlpha = 0.1;
    context.fill();
    context.globalAlpha = 1;
    context.setLineDash([5, 4]);
    context.stroke();
    context.setLineDash([]);
  };

  const zoom = (factor, px = box.clientWidth / 2, py = box.clientHeight / 2) => {
    const [ax, ay] = toData(px, py), before = view.scale;
    view.scale = Math.max(fitted / 4, Math.min(fitted * CLOSEST, view.scale * factor));
    const kept = before / view.scale;
    view.x = ax - (ax - view.x) * kept;
    view.y = ay - (ay - view.y) * kept;
    move();
  };
  const pan = (dx, dy) => { view.x -= dx / view.scale; view.y += dy / view.scale; move(); };
  function fit() {
    measure();
    Object.assign(view, { x: (bounds.left + bounds.right) / 2, y: (bounds.low + bounds.high) / 2, scale: fitted });
    move();
  }
  const measure = () => {
    const across = Math.max(bounds.right - bounds.left, 1e-9), up = Math.max(bounds.high - bounds.low, 1e-9);
    fitted = Math.max(1e-9, Math.min((box.clientWidth - 2 * MARGIN) / across, (box.clientHeight - 2 * MARGIN) / up));
  };

  const choose = (indices, aloud) => {
    scene.chosen = ranks(indices, rankOf, order.length);
    painter.update(scene);
    redraw();
    if (aloud) onSelect?.(indices);
  };
  const within = (corners) => {
    const polygon = new Float64Array(corners.length);
    for (let k = 0; k < corners.length; k += 2) polygon.set(toData(corners[k], corners[k + 1]), k);
    return inside(x, y, polygon, mask);
  };
  const inView = () => within([0, 0, box.clientWidth, 0, box.clientWidth, box.clientHeight, 0, box.clientHeight]);
  const under = (px, py) => nearest(x, y, ...toData(px, py), REACH / view.scale, mask);
  const hover = (i) => {
    if (i === hovered) return;
    hovered = i;
    sketch();
    onHover?.(i);
  };
  const setLasso = (on) => {
    lassoing = on;
    lassoButton.setAttribute("aria-pressed", String(on));
    lassoButton.style.outline = on ? "2px solid currentColor" : "";
    front.style.cursor = on ? "crosshair" : "grab";
  };

  /* Pointers: one pans, picks or draws the lasso; two zoom. */
  const spot = (event) => { const { left, top } = front.getBoundingClientRect(); return [event.clientX - left, event.clientY - top]; };
  const spread = () => {
    const [[ax, ay], [bx, by]] = pointers.values();
    return { x: (ax + bx) / 2, y: (ay + by) / 2, apart: Math.max(1, Math.hypot(ax - bx, ay - by)) };
  };
  const on = (type, listener, options) => front.addEventListener(type, listener, options);
  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    front.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, spot(event));
    moved = pointers.size === 1 ? 0 : Infinity;
    path = [];
    gesture = pointers.size > 1 ? "pinch" : event.shiftKey || lassoing ? "lasso" : "pan";
    if (gesture === "lasso") path.push(...spot(event));
    hover(-1);
  });
  on("pointermove", (event) => {
    const [px, py] = spot(event), last = pointers.get(event.pointerId);
    if (!last) { if (event.pointerType === "mouse" && !moving) hover(under(px, py)); return; }
    const before = pointers.size > 1 ? spread() : null;
    pointers.set(event.pointerId, [px, py]);
    moved += Math.hypot(px - last[0], py - last[1]);
    if (gesture === "lasso") { path.push(px, py); sketch(); }
    else if (gesture === "pan" && moved > CLICK) pan(px - last[0], py - last[1]);
    else if (gesture === "pinch" && before) {
      const after = spread();
      pan(after.x - before.x, after.y - before.y);
      zoom(after.apart / before.apart, after.x, after.y);
    }
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId) || pointers.size) return;
    const drawn = path, done = gesture;
    gesture = null;
    path = [];
    if (event.type === "pointercancel") sketch();
    else if (done === "lasso") choose(within(drawn), true);
    else if (moved <= CLICK) { const i = under(...spot(event)); if (i >= 0) onPick?.(i); }
  };
  on("pointerup", release);
  on("pointercancel", release);
  on("pointerleave", () => { if (!pointers.size) hover(-1); });
  on("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    zoom(Math.exp(-Math.max(-200, Math.min(200, event.deltaY * lines)) / 300), ...spot(event));
  }, { passive: false });
  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow) pan(-arrow[0] * box.clientWidth / 8, arrow[1] * box.clientHeight / 8);
    else if (event.key === "+" || event.key === "=") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else if (event.key === "0") fit();
    else if (event.key === "Enter") choose(inView(), true);
    else if (event.key === "Escape") { path = []; gesture = null; choose(NOTHING, true); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  /* Size, theme and painter. */
  const resize = () => {
    const all = view.scale === fitted;
    for (const canvas of [back, front]) {
      canvas.width = Math.max(1, Math.round(box.clientWidth * ratio()));
      canvas.height = Math.max(1, Math.round(box.clientHeight * ratio()));
    }
    measure();
    if (all) fit(); else redraw();
    sketch();
  };
  const repaint = () => {
    Object.assign(scene, resolved(container, palette));
    painter.update(scene);
    redraw();
  };
  const start = (wanted) => {
    back?.remove();
    back = element("canvas", { position: "absolute", inset: "0", width: "100%", height: "100%" });
    box.prepend(back);
    painter = wanted === "canvas" ? canvasPainter(back) : webglPainter(back, { anySpeed: wanted === "webgl2" });
    if (!painter) { start("canvas"); return; } // on another canvas: this one may have a WebGL context already
    back.addEventListener("webglcontextlost", () => { if (back?.isConnected) { start("canvas"); resize(); } }, { once: true });
    container.dataset.renderer = painter.name;
    drawing = 0;
    repaint();
  };
  start(renderer);
  view.scale = fitted;
  resize();
  const watch = new ResizeObserver(resize);
  watch.observe(box);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  theme.addEventListener("change", repaint);
  const themed = new MutationObserver(repaint);
  themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class", "style"] });

  return {
    /** Color the points anew. */
    setColor(changed, colors) { scene.color = taken(changed, order); palette = colors; repaint(); },
    /** Show the points whose mask is not 0; all with null. */
    setVisible(changed) {
      mask = changed;
      scene.shown = mask ? everyone.filter((rank) => mask[order[rank]]) : everyone;
      if (hovered >= 0 && mask && !mask[hovered]) hover(-1);
      delete container.dataset.drawn;
      painter.update(scene);
      redraw();
    },
    /** Highlight these points; none with an empty array. */
    select(indices) { choose(indices, false); },
    /** Position of a point in CSS pixels from the map's upper left corner. */
    locate: toScreen,
    resize,
    destroy() {
      watch.disconnect();
      themed.disconnect();
      theme.removeEventListener("change", repaint);
      clearTimeout(moving);
      cancelAnimationFrame(requested);
      box.remove();
      painter.destroy();
    },
  };
}

/* The points with coordinates in random order: any first part of it is a fair sample, and no class covers another. The painters get
 * copies in this order, because memory is read fastest from front to back. A point's place in it is its rank. */
function shuffled(x, y) {
  const order = new Uint32Array(x.length);
  let count = 0, state = 1;
  for (let i = 0; i < x.length; i += 1) if (Number.isFinite(x[i]) && Number.isFinite(y[i])) order[count++] = i;
  for (let i = count - 1; i > 0; i -= 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor(state / 4294967296 * (i + 1)), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  return order.subarray(0, count);
}

function taken(values, order) {
  const made = new values.constructor(order.length);
  for (let rank = 0; rank < order.length; rank += 1) made[rank] = values[order[rank]];
  return made;
}

function inverse(order, count) {
  const rankOf = new Uint32Array(count).fill(UNPLACED);
  for (let rank = 0; rank < order.length; rank += 1) rankOf[order[rank]] = rank;
  return rankOf;
}

/* Ranks, ascending, of these points; those without coordinates are left out. */
function ranks(indices, rankOf, count) {
  if (!indices.length) return NOTHING;
  const marked = new Uint8Array(count), found = new Uint32Array(indices.length);
  for (const i of indices) if (rankOf[i] !== UNPLACED) marked[rankOf[i]] = 1;
  let size = 0;
  for (let rank = 0; rank < count; rank += 1) if (marked[rank]) found[size++] = rank;
  return found.subarray(0, size);
}

function extent(x, y, order) {
  let left = Infinity, right = -Infinity, low = Infinity, high = -Infinity;
  for (const i of order) {
    if (x[i] < left) left = x[i];
    if (x[i] > right) right = x[i];
    if (y[i] < low) low = y[i];
    if (y[i] > high) high = y[i];
  }
  return order.length ? { left, right, low, high } : { left: -1, right: 1, low: -1, high: 1 };
}

/* The palette, the palette next to a selection, and the background as bytes, as the page's theme has them now. */
function resolved(container, palette) {
  const probe = element("span", {}), canvas = new OffscreenCanvas(257, 1), context = canvas.getContext("2d", { willReadFrequently: true });
  container.append(probe);
  const put = (place, css) => { context.fillStyle = css; context.fillRect(place, 0, 1, 1); };
  put(256, "Canvas");
  for (let node = container; node; node = node.parentElement) {
    const { backgroundColor } = getComputedStyle(node);
    if (!/^(transparent|rgba\(.*, 0\))$/.test(backgroundColor)) { put(256, backgroundColor); break; }
  }
  palette.slice(0, 256).forEach((css, place) => {
    probe.style.color = css;
    put(place, getComputedStyle(probe).color);
  });
  probe.remove();
  const { data } = context.getImageData(0, 0, 257, 1);
  const colors = new Uint8Array(data.subarray(0, 1024)), background = new Uint8Array(data.subarray(1024));
  const faded = colors.map((value, k) => 0.25 * value + 0.75 * background[k % 4]);
  return { colors, faded, background };
}

function element(name, style) {
  const made = document.createElement(name);
  Object.assign(made.style, style);
  return made;
}

function button(text, title, onClick) {
  const made = element("button", {});
  Object.assign(made, { type: "button", textContent: text, title });
  made.setAttribute("aria-label", title);
  made.addEventListener("click", onClick);
  return made;
}
