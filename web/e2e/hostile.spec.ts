import { expect, type Page, test } from "@playwright/test";
import { go, login, root, stranger, visitor } from "./site";

// The application default/trap is what somebody with the rights of a tenant can apply: markup, escapes and addresses of scripts wherever there is
// text, and in its log. e2e.TestDashboard applies it.

/** watched notes whatever runs that is not ours, or that the policy of the pages kept from running. */
async function watched(page: Page): Promise<string[]> {
  const seen: string[] = [];
  page.on("dialog", (d) => {
    seen.push("a dialog: " + d.message());
    d.dismiss();
  });
  page.on("console", (m) => {
    if (/Content Security Policy|trapped/.test(m.text())) seen.push(m.text());
  });
  page.on("request", (r) => {
    if (!r.url().startsWith(root + "/") && !/^(data|blob):/.test(r.url())) seen.push("a request to " + r.url());
  });
  return seen;
}

test("what a tenant writes is text on every page", async ({ browser }) => {
  const p = await visitor(browser);
  const seen = await watched(p);
  await login(p);
  for (const path of [
    "/",
    "/apps",
    "/apps/default/trap",
    "/apps/default/trap?tab=instances",
    "/apps/default/trap?tab=events",
    "/apps/default/trap?tab=versions",
    "/apps/default/trap?tab=manifest",
    "/volumes",
    "/images",
    "/map?app=default/trap",
    "/people?tab=audit",
    "/apps/default/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
    "/instances/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    "/%2F%2Fevil.example/..",
  ])
    await test.step(path, async () => {
      await go(p, path);
      await expect(p.locator("main")).toBeVisible();
      await p.waitForTimeout(300);
    });
  await go(p, "/apps/default/trap?tab=instances");
  await p
    .getByRole("link", { name: /^bait-/ })
    .first()
    .click();
  await p.getByRole("tab", { name: "Logs" }).click();
  await expect(p.getByText("<img src=x onerror=alert('trapped')>").first()).toBeVisible();
  expect(await p.locator("img[src=x], [href^='javascript:'], iframe").count()).toBe(0);
  expect(seen).toEqual([]);
});

test("pages of other origins get nothing of a session", async ({ browser }) => {
  const p = await visitor(browser);
  await login(p);
  const cookie = async () => (await p.context().cookies(root + "/v1/auth")).map((c) => c.value).join();
  const before = await cookie();
  expect(before).not.toBe("");
  expect(
    await p.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)),
  ).not.toContain(before);
  expect(p.url()).not.toContain(before);
  expect(await p.evaluate(async () => (await navigator.serviceWorker?.getRegistrations())?.length ?? 0)).toBe(0);

  const foreign = await p.context().newPage();
  // At another port of the dashboard's host, to a browser it is the same site: cookies come along, SameSite=Strict or not. localhost is another.
  const answers: string[] = [];
  foreign.on("response", (r) => answers.push(`${r.request().method()} ${r.url().replace(root, "")} ${r.status()}`));
  for (const origin of [stranger, stranger.replace("127.0.0.1", "localhost")]) {
    await foreign.goto(origin + "/");
    const got = await foreign.evaluate(async (root) => {
      const out: string[] = [];
      // A Blob without a type is sent without Content-Type, for which no browser asks first.
      for (const [path, method, body] of [
        ["/v1/auth/refresh", "POST", "{}"],
        ["/v1/auth/logout", "POST", undefined],
        ["/v1/applications", "GET", undefined],
      ] as const)
        for (const mode of ["cors", "no-cors"] as const)
          for (const data of body ? [body, new Blob([body])] : [undefined])
            try {
              const r = await fetch(root + path, { method, mode, credentials: "include", body: data });
              if (r.type !== "opaque") out.push(`${path}: ${r.status} ${await r.text()}`);
            } catch {
              // as it has to be
            }
      return out;
    }, root);
    expect(got).toEqual([]);
    for (const f of foreign.frames().filter((f) => f !== foreign.mainFrame()))
      expect(await f.content(), "the dashboard in a frame").not.toContain("Log in");
    expect(await cookie(), `a page of ${origin} renewed the session`).toBe(before);
  }
  expect(answers, "it did not even try").toContain("POST /v1/auth/refresh 403");
  await p.reload();
  await expect(p.getByRole("heading", { name: "Overview", level: 1 })).toBeVisible();
});
