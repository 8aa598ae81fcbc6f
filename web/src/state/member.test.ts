import { expect, test } from "vitest";
import { memberState, trust } from "./member";

const drain = { ending: 0, left: 2, moving: 1, parallel: 1, since: "" };

test("the state that matters most is named", () => {
  expect(memberState({ connected: true })).toBe("Connected");
  expect(memberState({ connected: false })).toBe("Disconnected");
  expect(memberState({ connected: false, lost: true, hold: "x" })).toBe("Lost");
  expect(memberState({ connected: true, hold: "drained", drain })).toBe("Draining");
  expect(memberState({ connected: true, hold: "drained", drain: { ...drain, left: 0, done: true } })).toBe("Drained");
  expect(memberState({ connected: true, hold: "disk" })).toBe("Cordoned");
  expect(memberState({ connected: true, refusing: "disk", credit: { rank: 0.2, quarantine: "lies" } })).toBe(
    "Quarantined",
  );
});

test("trust says by how much a member counts", () => {
  expect(trust(undefined)).toBe("Trusted");
  expect(trust({ rank: 0.62 })).toBe("Counts for 62 %");
  expect(trust({ rank: 0.1, quarantine: "it says too much" })).toBe("Quarantined: it says too much");
});
