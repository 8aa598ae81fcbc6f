import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import { asUser } from "../test-session";
import VersionDiff, { hunks } from "./versiondiff";

const manifest = (image: string) => ({
  metadata: { name: "tide" },
  spec: { services: [{ name: "gauge", image, args: ["a\nb\n"] }] },
});

function Shown() {
  const [pair, setPair] = useState<[number, number]>([1, 2]);
  return <VersionDiff path="/v1/apps/default/tide" generations={[3, 2, 1]} pair={pair} choose={setPair} />;
}

test("two generations of a manifest are compared, line by line", async () => {
  const user = userEvent.setup();
  asUser(<Shown />, {
    role: "root",
    scopes: ["apps:read"],
    at: "/",
    route: "/",
    answers: {
      "/v1/apps/default/tide/manifest?generation=1": { generation: 1, manifest: manifest("my/web:1") },
      "/v1/apps/default/tide/manifest?generation=2": { generation: 2, manifest: manifest("my/web:2") },
      "/v1/apps/default/tide/manifest?generation=3": { generation: 3, manifest: manifest("my/web:2") },
    },
  });
  const region = await screen.findByRole("region", { name: "Manifest of generation 2, compared with 1" });
  const lines = [...region.querySelectorAll(".diff-old, .diff-new")].map((l) => l.textContent);
  expect(lines).toEqual(["removed: -    image: my/web:1", "added: +    image: my/web:2"]);
  await user.click(screen.getByRole("textbox", { name: "From generation" }));
  await user.click(await screen.findByRole("option", { name: "3" }));
  expect(await screen.findByText("Their manifests are the same.")).toBeTruthy();
});

test("hunks have the lines around what differs, and nothing of equal texts", () => {
  const text = Array.from({ length: 40 }, (_, n) => `line ${n}\n`).join("");
  expect(hunks(text, text)).toEqual([]);
  const [one, two] = hunks(text, text.replace("line 5\n", "").replace("line 30", "other"))!;
  expect(one!.lines).toHaveLength(7);
  expect(two!.lines.filter((l) => l[0] !== " ")).toEqual(["-line 30", "+other"]);
});

test("texts that differ throughout do not hold the page up", () => {
  const lines = (word: string) => Array.from({ length: 20_000 }, (_, n) => `${word} ${n}\n`).join("");
  expect(hunks(lines("old"), lines("new"))).toBeUndefined();
  expect(hunks(lines("old"), lines("old") + "new\n")).toHaveLength(1);
}, 60_000);
