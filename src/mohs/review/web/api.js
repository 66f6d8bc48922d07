/* Requests to the server. An error is an exception with the server's words; without the token, the page asks for it. */

export class ApiError extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

let locked = () => {};
/** What to do when the server wants the token. */
export const onLocked = (call) => { locked = call; };

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is mohs review still running?", 0);
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && path !== "login") locked();
  let told = answer.statusText;
  try { told = (await answer.json()).error || told; } catch { /* it has no words */ }
  throw new ApiError(told, answer.status);
}

export const get = async (path, options) => (await ask(path, options)).json();
export const bytes = async (path) => (await ask(path)).arrayBuffer();
export const post = async (path, body = {}) => (await ask(path, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
})).json();
export const send = async (path, body) => (await ask(path, {
  method: "POST", headers: { "content-type": "application/octet-stream" }, body,
})).json();
