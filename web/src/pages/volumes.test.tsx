import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { asUser } from "../test-session";
import Volumes from "./volumes";

const volume = { namespace: "default", app: "shop", service: "db", origin: "root", volumes: ["data"], size: "2Gi" };
const used = { ...volume, name: "shop/db/0", replica: 0, state: "Used", instance: "db-x", cluster: "pier" };
const former = { ...volume, name: "shop/db/0:old", replica: 0, volume: "old", state: "Kept" };
const kept = { ...volume, name: "old/db/1", app: "old", replica: 1, state: "Kept", since: "2026-01-01T00:00:00Z" };

const show = (scopes: string[]) =>
  asUser(<Volumes />, {
    role: "root",
    scopes,
    at: "/volumes",
    route: "/volumes",
    answers: {
      "/v1/volumes": { items: [used, former, kept] },
      "/v1/volumes/default/shop/db/0?volume=old": {},
      "/v1/volumes/default/old/db/1": {},
    },
  });

test("volumes that no instance uses can be deleted, after a question", async () => {
  const user = userEvent.setup();
  const { calls } = show(["apps:read", "apps:write"]);
  expect(await screen.findByText("3 volumes")).toBeTruthy();
  expect(screen.getAllByText("Kept")).toHaveLength(2);
  expect(screen.queryByRole("button", { name: "Delete shop/db/0" })).toBeNull();
  await user.click(screen.getByRole("button", { name: "Delete old/db/1" }));
  await user.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Delete" }));
  await waitFor(() => expect(calls).toContain("DELETE /v1/volumes/default/old/db/1"));
  await user.click(screen.getByRole("button", { name: "Delete shop/db/0:old" }));
  await user.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Delete" }));
  await waitFor(() => expect(calls).toContain("DELETE /v1/volumes/default/shop/db/0?volume=old"));
});

test("who may only read is offered nothing else", async () => {
  show(["apps:read"]);
  await screen.findByText("3 volumes");
  expect(screen.queryByRole("button", { name: /^Delete/ })).toBeNull();
});
