// Requests to the server. Where reading needs a token, the page asks for it once and keeps it until the tab is closed.

const KEY = "channelhash-token";
let asking = null; // the question for the token that is open

/** A request with the token, if there is one; asks for the token where the server needs one. */
async function send(address, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(address, { ...options, headers });
  if (response.status !== 401) return response;
  if (sessionStorage.getItem(KEY) === token) {
    asking ??= askToken().finally(() => { asking = null; });
    if (!await asking) return response;
  }
  return send(address, options);
}

/** Ask for the token; whether one was given. */
async function askToken() {
  const dialog = document.getElementById("token");
  const input = dialog.querySelector("input");
  input.value = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (!input.value.trim()) return false;
  sessionStorage.setItem(KEY, input.value.trim());
  return true;
}

/** JSON of the server, or an error that says what the server said. */
export async function fetched(address, options = {}) {
  let response;
  try {
    response = await send(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  const body = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (!response.ok) throw new Error(body?.error ?? `The server answered with status ${response.status}.`);
  if (!body) throw new Error("The server's answer broke off. Is it still running?");
  return body;
}

/** Show a picture of the server in an element; an element's own request would carry no token. */
export async function showPicture(img, address) {
  if (address.startsWith("blob:") || !sessionStorage.getItem(KEY)) {
    img.src = address;
    return;
  }
  const response = await send(address).catch(() => null);
  if (!response?.ok) {
    img.dispatchEvent(new Event("error"));
    return;
  }
  const url = URL.createObjectURL(await response.blob());
  img.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  img.src = url;
}
