import { MantineProvider, Text } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Instance } from "../api/types";
import { Folded } from "./instances";

const list = [
  { id: "beat-1", state: "Terminated" },
  { id: "beat-2", state: "Terminated" },
  { id: "beat-3", state: "Running" },
  { id: "beat-4", state: "Failed" },
] as Instance[];

const show = (off: boolean) =>
  render(
    <MantineProvider env="test">
      <Folded list={list} off={off}>
        {(shown) => <Text>{shown.map((i) => i.id).join(" ")}</Text>}
      </Folded>
    </MantineProvider>,
  );

test("finished runs are folded until somebody asks; what failed is not finished", async () => {
  show(false);
  expect(screen.getByText("beat-3 beat-4")).toBeTruthy();
  await userEvent.click(screen.getByRole("switch", { name: "Show 2 finished runs" }));
  expect(screen.getByText("beat-1 beat-2 beat-3 beat-4")).toBeTruthy();
});

test("who searches sees all that matches", () => {
  show(true);
  expect(screen.getByText("beat-1 beat-2 beat-3 beat-4")).toBeTruthy();
  expect(screen.queryByRole("switch")).toBeNull();
});
