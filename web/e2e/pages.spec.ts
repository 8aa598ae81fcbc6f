import { expect, test } from "@playwright/test";
import { accessible, everybody, go, login, root, rootPassword, site, sitePassword, visit, visitor } from "./site";

// Each page of each server: by the rules of accessibility in light and in dark, and without scrolling to the side on a small screen.
for (const [name, server, password, paths] of [
  [
    "root",
    root,
    rootPassword,
    [
      "/",
      "/apps",
      "/apps/default/pair",
      "/apps/default/pair?tab=instances",
      "/apps/default/pair?tab=events",
      "/apps/default/pair?tab=versions",
      "/apps/default/pair?tab=manifest",
      "/instances",
      "/instances/ID",
      "/instances/ID?tab=logs",
      "/instances/ID?tab=placement",
      "/volumes",
      "/images",
      "/build",
      "/map?app=default/pair",
      "/clusters",
      "/clusters/local",
      "/upgrades",
      "/ingresses",
      "/people",
      "/people?tab=users",
      "/people?tab=roles",
      "/people?tab=orgs",
      "/people?tab=secrets",
      "/people?tab=certificates",
      "/people?tab=tokens",
      "/people?tab=members",
      "/people?tab=audit",
    ],
  ],
  [
    "site",
    site,
    sitePassword,
    [
      "/",
      "/images",
      "/workers",
      "/workers?tab=history",
      "/workers/w1",
      "/workers/w1?tab=history",
      "/ingresses",
      "/workers/w1?tab=runtimes",
      "/workers/w1?tab=devices",
      "/workers/w1?tab=overlay",
      "/map",
      "/people",
    ],
  ],
] as const)
  test(`every page of the ${name} can be used by everybody, in light, in dark and on a small screen`, async ({
    browser,
  }) => {
    const p = await visitor(browser);
    await go(p, "/", server);
    await expect(p.getByRole("button", { name: "Log in" })).toBeVisible();
    await accessible(p);
    await login(p, server, password);
    await go(p, "/apps/default/pair?tab=instances", server);
    const id = await p
      .getByRole("link", { name: /^buoy-/ })
      .first()
      .textContent();
    for (const path of paths) {
      await test.step(path, async () => {
        await visit(p, path.replace("ID", id!));
        await expect(p.getByRole("heading", { level: 1 })).toBeVisible();
        await expect(p.getByRole("heading", { level: 1 })).not.toHaveText("Not found");
        await p.waitForTimeout(700); // charts and lists fill
        await everybody(p, name + path.replace(/[^a-zA-Z0-9]+/g, "-"));
      });
    }
    await p.close();
  });

test("a list of ten thousand is as quick as one of ten", async ({ browser }) => {
  const p = await visitor(browser);
  await login(p);
  // No machine of tests runs ten thousand; what the server would tell of them is made up.
  const lines: string[] = [];
  for (let i = 0; i < 10_000; i++)
    lines.push(
      JSON.stringify({
        type: "set",
        kind: "instance",
        instance: {
          id: `gauge-${String(i).padStart(5, "0")}`,
          service: { app: { namespace: "default", name: "tide" }, service: "gauge" },
          state: i % 100 ? "Running" : "Failed",
          restarts: 0,
          generation: 1,
          revision: "r",
          ordinal: i,
          fence: {},
          createdAt: "2026-01-01T00:00:00Z",
          conditions: [{ type: "Ready", status: true, since: "2026-01-01T00:00:00Z" }],
          cluster: "site-" + (i % 50),
        },
      }),
    );
  lines.push('{"type":"synced"}', "");
  await p.route("**/v1/watch?kinds=instance*", (r) =>
    r.fulfill({ contentType: "application/x-ndjson", body: lines.join("\n") }),
  );
  await go(p, "/instances");
  await expect(p.getByText("10,000 instances")).toBeVisible();
  expect(await p.getByRole("row").count()).toBeLessThan(80);
  await p.getByRole("textbox", { name: "Search" }).fill("gauge-09999");
  await expect(p.getByText("1 of 10,000 instances")).toBeVisible();
  await p.getByRole("textbox", { name: "Search" }).fill("");
  await expect(p.getByText("10,000 instances", { exact: true })).toBeVisible(); // or it is the list of one that is scrolled
  const list = p.getByRole("region", { name: "Instances" });
  await list.evaluate((e) => (e.scrollTop = e.scrollHeight));
  await expect(p.getByRole("link", { name: "gauge-09999" })).toBeVisible();
  expect(await p.getByRole("row").count()).toBeLessThan(80);
  await p.close();
});

test("a site shows the last day of a worker and its own, also to who sees no drawing", async ({ browser }) => {
  const p = await visitor(browser);
  await login(p, site, sitePassword);
  for (const path of ["/workers/w1?tab=history", "/workers?tab=history"]) {
    await go(p, path, site);
    await expect(p.getByRole("heading", { name: "Memory" })).toBeVisible();
    const memory = p.locator("section", { has: p.getByRole("heading", { name: "Memory" }) });
    await expect(memory.getByText(/^Last: .*iB, most: .*iB at .*, limit .*iB/)).toBeVisible();
    await expect(p.getByRole("table", { name: "Memory, hour by hour" })).toBeAttached();
  }
  await p.getByText("6 hours").click();
  await expect(p.getByRole("radio", { name: "6 hours" })).toBeChecked();
  await expect(p.getByRole("heading", { name: "Processors" })).toBeVisible();
  await p.close();
});
