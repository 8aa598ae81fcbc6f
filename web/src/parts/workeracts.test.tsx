import { expect, test } from "vitest";
import { offered } from "./workeracts";

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
