import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { asUser } from "../test-session";
import { MemberActions, offered } from "./memberacts";

const drain = { ending: 0, left: 1, moving: 0, parallel: 1, since: "" };

test("what can be done with a worker follows how it stands", () => {
  expect(offered({ connected: true })).toEqual({ drain: true, hold: true, release: "", remove: false });
  expect(offered({ connected: true, hold: "disk" })).toEqual({
    drain: true,
    hold: false,
    release: "Uncordon",
    remove: false,
  });
  expect(offered({ connected: true, hold: "drained", drain })).toEqual({
    drain: false,
    hold: false,
    release: "End the drain",
    remove: false,
  });
  expect(offered({ connected: false, claims: { cpu: 64 } })).toEqual({
    drain: true,
    hold: true,
    release: "Trust again",
    remove: true,
  });
  expect(offered({ connected: true, credit: { rank: 0.1, quarantine: "lies" } }).release).toBe("Trust again");
});

test("a cluster is cordoned, drained and uncordoned, each after a question", async () => {
  const user = userEvent.setup();
  const sent: string[] = [];
  const w = { name: "harbour", connected: true, hold: undefined as string | undefined };
  const { calls } = asUser(
    <>
      <MemberActions of="cluster" w={w} path="/v1/clusters/harbour" reload={() => {}} />
      <MemberActions of="cluster" w={{ ...w, hold: "new switch", drain }} path="/v1/clusters/hill" reload={() => {}} />
    </>,
    {
      role: "root",
      scopes: ["clusters:admin"],
      at: "/",
      route: "/",
      answers: { "/v1/clusters/harbour/hold": {}, "/v1/clusters/harbour/drain": {}, "/v1/clusters/hill/hold": {} },
      sent,
    },
  );
  await user.click(await screen.findByRole("button", { name: "Cordon" }));
  const cordon = await screen.findByRole("dialog", { name: "Cordon harbour" });
  expect(within(cordon).getByRole<HTMLButtonElement>("button", { name: "Cordon" }).disabled).toBe(true);
  await user.type(within(cordon).getByRole("textbox", { name: /^Why/ }), "new switch");
  await user.click(within(cordon).getByRole("button", { name: "Cordon" }));
  await user.click(await screen.findByRole("button", { name: "Drain" }));
  const form = await screen.findByRole("dialog", { name: "Drain harbour" });
  expect(form.textContent).toContain("The cluster’s own applications stay.");
  expect(within(form).queryByText("Preferred worker")).toBeNull();
  await user.click(within(form).getByRole("button", { name: "Drain" }));
  await user.click(await screen.findByRole("button", { name: "End the drain" }));
  const end = await screen.findByRole("dialog", { name: "End the drain: harbour?" });
  await user.click(within(end).getByRole("button", { name: "End the drain" }));
  await screen.findByText("harbour is uncordoned");
  expect(calls.filter((c) => c.startsWith("PUT"))).toEqual([
    "PUT /v1/clusters/harbour/hold",
    "PUT /v1/clusters/harbour/drain",
    "PUT /v1/clusters/hill/hold",
  ]);
  expect(sent).toEqual(['{"reason":"new switch"}', '{"parallel":1}', '{"reason":""}']);
}, 20_000);
