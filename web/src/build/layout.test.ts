import { expect, test } from "vitest";
import { layout } from "./layout";

test("who is called stands to the right of all that call, also in a circle", () => {
  const p = layout([
    { name: "a", links: [{ service: "b" }, { service: "c" }] },
    { name: "b", links: [{ service: "c" }] },
    { name: "c" },
  ]);
  expect(p.get("a")!.x).toBeLessThan(p.get("b")!.x);
  expect(p.get("b")!.x).toBeLessThan(p.get("c")!.x);
  const circle = layout([
    { name: "a", links: [{ service: "b" }] },
    { name: "b", links: [{ service: "a" }, { service: "b" }, { service: "gone" }] },
  ]);
  expect(circle.size).toBe(2);
});
