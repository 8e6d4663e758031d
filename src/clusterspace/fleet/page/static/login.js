// Log in: a token or the browser's certificate is exchanged for a session; neither is kept here.

import { askJson } from "./api.js";
import { fill, h } from "./dom.js";
import { S } from "./strings.js";

/** The form; `opened` is told the session. */
export function loginScreen(why, opened) {
  const said = h("p", { role: "alert", class: why ? "notice warn" : "notice", hidden: !why }, why);
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-describedby": "token-hint" });

  async function enter(headers, refusal) {
    fill(said, S.login.waiting);
    said.hidden = false;
    said.className = "notice";
    try {
      const { value } = await askJson("/ui/session", { method: "POST", headers });
      token.value = "";
      opened(value);
    } catch (error) {
      said.className = "notice bad";
      fill(said, error.status === 401 ? refusal : S.failed(error.message));
    }
  }

  const form = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        enter({ Authorization: `Bearer ${token.value.trim()}` }, S.login.wrong);
      },
    },
    h("label", { for: "token" }, S.login.token),
    token,
    h("p", { class: "quiet", id: "token-hint" }, S.login.tokenHint),
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, S.login.submit), h("button", { type: "button", onclick: () => enter({}, S.login.noCertificate) }, S.login.certificate)),
  );
  function leave() {
    sessionStorage.setItem("address", location.hash);
    location.assign("/ui/sign-on");
  }

  // Where an issuer is configured it comes first: most people have an account and no token.
  const signOn = h("p", { class: "row", hidden: true });
  askJson("/ui/logins").then(
    ({ value }) => {
      if (!value.signOn) return;
      fill(signOn, h("button", { type: "button", class: "main", onclick: leave }, S.login.signOn(value.signOn)));
      signOn.hidden = false;
    },
    () => {}, // the other ways are there all the same
  );
  queueMicrotask(() => token.focus());
  return h(
    "main",
    { class: "login" },
    h("div", { class: "card" }, h("p", { class: "product" }, h("img", { src: "icon.svg", alt: "", width: "20", height: "20" }), S.product), h("h1", {}, S.login.title), h("p", {}, S.login.lead), said, signOn, form, h("p", { class: "quiet" }, S.login.command, " ", h("code", {}, "clusterspace ui"))),
  );
}
