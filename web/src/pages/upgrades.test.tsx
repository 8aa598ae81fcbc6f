import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Upgrade } from "../api/types";
import { asUser } from "../test-session";
import Upgrades, { far, offeredFor, UpgradePage } from "./upgrades";

const upgrade: Upgrade = {
  name: "spring",
  image: "ops/skerry:2",
  digest: "ops/skerry@sha256:12",
  by: "anna",
  since: "2026-01-01T00:00:00Z",
  at: "2026-01-01T00:10:00Z",
  state: "Stopped",
  why: "1 cluster failed, 0 may",
  sites: [
    { cluster: "harbour", wave: 1, stage: "Done", workers: 3, upgraded: 3, versions: { "2.0": 3 } },
    { cluster: "hill", wave: 2, stage: "Failed", why: "w1 keeps its previous program", workers: 2, upgraded: 1 },
    { cluster: "ridge", wave: 3, stage: "Waiting" },
    { cluster: "moor", wave: 0, stage: "Skipped", why: "it does not grant waves" },
  ],
};

const page = (o: { scopes: string[]; answers?: Record<string, unknown> }) =>
  asUser(<UpgradePage />, {
    role: "root",
    at: "/upgrades/spring",
    route: "/upgrades/:name",
    answers: { "/v1/upgrades/spring": upgrade, "/v1/upgrades/spring/state": null, ...o.answers },
    scopes: o.scopes,
  });

test("the list tells how far each upgrade is and why it stopped", async () => {
  asUser(<Upgrades />, {
    role: "root",
    at: "/upgrades",
    route: "/upgrades",
    answers: { "/v1/upgrades": { items: [upgrade] } },
    scopes: ["clusters:read"],
  });
  expect(await screen.findByRole("link", { name: "spring" })).toBeTruthy();
  expect(screen.getByText("1 of 3 clusters done, 1 failed, 1 skipped")).toBeTruthy();
  expect(screen.getByText("1 cluster failed, 0 may")).toBeTruthy();
});

test("an upgrade of which every cluster was skipped is drawn as none that is done", async () => {
  const skipped = {
    ...upgrade,
    state: "Done" as const,
    sites: upgrade.sites!.map((s) => ({ ...s, stage: "Skipped" as const })),
  };
  page({ scopes: ["clusters:read"], answers: { "/v1/upgrades/spring": skipped } });
  const bar = await screen.findByRole("progressbar", { name: "spring: 0 of 0 clusters done, 4 skipped" });
  expect(bar.getAttribute("aria-valuenow")).toBe("0");
});

test("an upgrade that stopped is resumed or aborted, after a question; each cluster has its reason", async () => {
  const { calls } = page({ scopes: ["clusters:read", "clusters:admin"] });
  const row = (await screen.findByRole("link", { name: "hill" })).closest("tr")!;
  expect(within(row).getByText("w1 keeps its previous program")).toBeTruthy();
  expect(within(row).getByText("1 of 2")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Pause" })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Abort" }));
  await userEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Cancel" }));
  expect(calls).not.toContain("POST /v1/upgrades/spring/state");
  await userEvent.click(screen.getByRole("button", { name: "Resume" }));
  await userEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Resume" }));
  expect(calls).toContain("POST /v1/upgrades/spring/state");
});

test("who may only look has nothing to press", async () => {
  page({ scopes: ["clusters:read"] });
  expect(await screen.findByRole("heading", { name: "spring" })).toBeTruthy();
  for (const name of ["Pause", "Resume", "Abort", "Forget"]) expect(screen.queryByRole("button", { name })).toBeNull();
});

test("what is offered follows the state", () => {
  expect(offeredFor({ state: "Running" })).toEqual(["pause", "abort"]);
  expect(offeredFor({ state: "Paused" })).toEqual(["resume", "abort"]);
  expect(offeredFor({ state: "Done" })).toEqual(["forget"]);
  expect(offeredFor({ state: "Aborted" })).toEqual(["forget"]);
  expect(far({ ...upgrade, sites: [] })).toBe("0 of 0 clusters done");
});
