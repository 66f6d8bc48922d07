/* Which points lie inside a polygon? Exact by the even-odd rule, in time linear in the number of points. */

const ROWS = 512;

/**
 * Indices, ascending, of the points inside a closed polygon.
 *
 * The polygon's height is divided into rows, each with the list of the edges that cross it, so that a point is compared with the
 * few edges of its row instead of all of them.
 *
 * @param {Float32Array} x coordinates of the points; a point with NaN is never inside
 * @param {Float32Array} y
 * @param {ArrayLike<number>} polygon vertices x0, y0, x1, y1, ...
 * @param {Uint8Array | null} mask points with 0 are left out
 * @returns {Uint32Array}
 */
export function inside(x, y, polygon, mask = null) {
  const corners = polygon.length >> 1;
  let left = Infinity, right = -Infinity, low = Infinity, high = -Infinity;
  for (let k = 0; k < corners; k += 1) {
    left = Math.min(left, polygon[2 * k]); right = Math.max(right, polygon[2 * k]);
    low = Math.min(low, polygon[2 * k + 1]); high = Math.max(high, polygon[2 * k + 1]);
  }
  if (corners < 3 || !(right > left) || !(high > low)) return new Uint32Array(0);

  const perRow = ROWS / (high - low);
  const row = (value) => Math.min(ROWS - 1, Math.floor((value - low) * perRow));
  const edges = Array.from({ length: ROWS }, () => []);
  for (let k = 0; k < corners; k += 1) {
    const [ax, ay] = [polygon[2 * k], polygon[2 * k + 1]], next = (k + 1) % corners;
    const [bx, by] = [polygon[2 * next], polygon[2 * next + 1]];
    if (ay === by) continue;
    for (let r = row(Math.min(ay, by)); r <= row(Math.max(ay, by)); r += 1) edges[r].push(ay, by, ax, (bx - ax) / (by - ay));
  }
  const crossing = edges.map((list) => Float64Array.from(list));

  const found = new Uint32Array(x.length);
  let count = 0;
  for (let i = 0; i < x.length; i += 1) {
    const px = x[i], py = y[i];
    if (!(px >= left && px <= right && py >= low && py <= high) || (mask && !mask[i])) continue;
    const list = crossing[Math.min(ROWS - 1, ((py - low) * perRow) | 0)];
    let odd = false;
    for (let e = 0; e < list.length; e += 4) {
      if ((list[e] > py) !== (list[e + 1] > py) && px < list[e + 2] + (py - list[e]) * list[e + 3]) odd = !odd;
    }
    if (odd) found[count++] = i;
  }
  return found.slice(0, count);
}

/** Index of the visible point nearest to (px, py) within this distance; -1 without one. */
export function nearest(x, y, px, py, reach, mask = null) {
  let best = -1, least = reach * reach;
  for (let i = 0; i < x.length; i += 1) {
    const dx = x[i] - px;
    if (!(dx < reach && dx > -reach)) continue;
    const far = dx * dx + (y[i] - py) ** 2;
    if (far < least && !(mask && !mask[i])) { least = far; best = i; }
  }
  return best;
}
