/* How are the points of the map drawn? By WebGL 2, or pixel by pixel on a plain canvas where there is no graphics card.
 *
 * A painter draws a scene: x, y (Float32Array), color (Uint8Array, index of the palette), shown and chosen (Uint32Array, ascending
 * indices of the points to draw), colors and faded (Uint8Array, 256 × RGBA: the palette, and the palette next to a
 * selection), background (RGBA). `update(scene)` takes a changed scene; `paint(view, upTo, side)` draws the first `upTo` shown points
 * and all chosen ones, `side` device pixels wide; `done()` says whether the last picture is finished. */

const VERTEX = `#version 300 es
in float x; in float y; in float color;
uniform vec2 center, perUnit; uniform float side, opacity;
uniform sampler2D palette;
out vec4 shade;
void main() {
  gl_Position = vec4((vec2(x, y) - center) * perUnit, 0, 1);
  gl_PointSize = side;
  shade = vec4(texelFetch(palette, ivec2(int(color), 0), 0).rgb * opacity, opacity);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade;
out vec4 pixel;
void main() {
  if (distance(gl_PointCoord, vec2(.5)) > .52) discard;
  pixel = shade;
}`;

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/** A painter that uses WebGL 2; null where the browser has none. `anySpeed` accepts one without a graphics card. */
export function webglPainter(canvas, { anySpeed = false } = {}) {
  const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, depth: false, failIfMajorPerformanceCaveat: !anySpeed });
  if (!gl || (!anySpeed && SOFTWARE.test(hardware(gl)))) return null;
  const program = link(gl);
  gl.useProgram(program);
  const uniform = Object.fromEntries(["center", "perUnit", "side", "opacity"].map((name) => [name, gl.getUniformLocation(program, name)]));
  const buffers = Object.fromEntries(["x", "y", "color", "shown", "chosen"].map((name) => [name, gl.createBuffer()]));
  ["x", "y", "color"].forEach((name) => {
    const place = gl.getAttribLocation(program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, 1, name === "color" ? gl.UNSIGNED_BYTE : gl.FLOAT, false, 0, 0);
  });
  gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  const held = {};
  let scene = null, fence = null;

  const upload = (name, target) => {
    if (held[name] === scene[name]) return;
    gl.bindBuffer(target, buffers[name]);
    gl.bufferData(target, scene[name], gl.STATIC_DRAW);
    held[name] = scene[name];
  };
  const points = (name, count, palette, opacity, side) => {
    if (!count) return;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette);
    gl.uniform1f(uniform.opacity, opacity);
    gl.uniform1f(uniform.side, side);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffers[name]);
    gl.drawElements(gl.POINTS, count, gl.UNSIGNED_INT, 0);
  };
  return {
    name: "webgl2",
    update(changed) {
      scene = changed;
      ["x", "y", "color"].forEach((name) => upload(name, gl.ARRAY_BUFFER));
      ["shown", "chosen"].forEach((name) => upload(name, gl.ELEMENT_ARRAY_BUFFER));
    },
    paint(view, upTo, side) {
      const { width, height } = canvas;
      gl.viewport(0, 0, width, height);
      const [red, green, blue] = scene.background;
      gl.clearColor(red / 255, green / 255, blue / 255, 1);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform2f(uniform.center, view.x, view.y);
      gl.uniform2f(uniform.perUnit, 2 * view.scale / width, 2 * view.scale / height);
      points("shown", upTo, scene.chosen.length ? scene.faded : scene.colors, 0.6, side);
      points("chosen", scene.chosen.length, scene.colors, 0.8, side);
      fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
      gl.flush();
    },
    done() {
      if (fence && gl.getSyncParameter(fence, gl.SYNC_STATUS) !== gl.SIGNALED && !gl.isContextLost()) return false;
      gl.deleteSync(fence);
      fence = null;
      return true;
    },
    destroy() { gl.getExtension("WEBGL_lose_context")?.loseContext(); },
  };
}

/** A painter that writes pixels itself; a point covers half of what is under it. Faster than WebGL without a graphics card. */
export function canvasPainter(canvas) {
  const context = canvas.getContext("2d", { alpha: false });
  let scene = null, image = null, pixels = null;

  const points = (indices, count, palette, view, side) => {
    const { x, y, color } = scene, { width, height } = image, { scale } = view;
    const shades = halved(palette);
    const left = width / 2 - view.x * scale - (side - 1) / 2, top = height / 2 + view.y * scale - (side - 1) / 2;
    const right = width - side + 1, bottom = height - side + 1;
    for (let k = 0; k < count; k += 1) {
      const i = indices[k], px = left + x[i] * scale, py = top - y[i] * scale;
      if (!(px >= 0 && py >= 0 && px < right && py < bottom)) continue;
      const shade = shades[color[i]];
      for (let v = 0, start = (py | 0) * width + (px | 0); v < side; v += 1, start += width) {
        for (let at = start; at < start + side; at += 1) pixels[at] = ((pixels[at] >>> 1) & 0x7f7f7f) + shade;
      }
    }
  };
  return {
    name: "canvas",
    update(changed) { scene = changed; },
    paint(view, upTo, side) {
      if (image?.width !== canvas.width || image?.height !== canvas.height) {
        image = context.createImageData(canvas.width, canvas.height);
        pixels = new Uint32Array(image.data.buffer);
      }
      const whole = Math.max(1, Math.round(side));
      pixels.fill(packed(scene.background) & 0xffffff);
      points(scene.shown, upTo, scene.chosen.length ? scene.faded : scene.colors, view, whole);
      points(scene.chosen, scene.chosen.length, scene.colors, view, whole);
      for (let at = 0; at < pixels.length; at += 1) pixels[at] |= 0xff000000;
      context.putImageData(image, 0, 0);
    },
    done: () => true,
    destroy() {},
  };
}

/* RGBA as a pixel of an ImageData, little-endian as every machine with a browser. */
const packed = ([red, green, blue]) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;

/* Half of each color of a palette, without opacity: what a point adds to the half of the pixel under it. */
const halved = (palette) => Uint32Array.from({ length: 256 }, (_, k) => (packed(palette.subarray(4 * k, 4 * k + 3)) >>> 1) & 0x7f7f7f);

function hardware(gl) {
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  return gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
}

function link(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(`WebGL: ${gl.getProgramInfoLog(program)}`);
  return program;
}
