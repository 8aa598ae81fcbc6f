import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { Suspense } from "react";
import { expect, test, vi } from "vitest";
import { again, Caught, later } from "./later";

test("code that does not come is asked for again", async () => {
  let tries = 0;
  const load = async () => {
    if (++tries < 3) throw new Error("the link broke");
    return "here";
  };
  expect(await again(load, [0, 0, 0])).toBe("here");
  expect(tries).toBe(3);
  await expect(again(() => Promise.reject(new Error("gone")), [0])).rejects.toThrow("gone");
});

test("a part that never comes says so, and what is beside it stays", async () => {
  vi.useFakeTimers();
  const quiet = vi.spyOn(console, "error").mockImplementation(() => {});
  const Part = later<() => null>(() => Promise.reject(new Error("the link broke")));
  render(
    <MantineProvider env="test">
      <p>beside it</p>
      <Caught>
        <Suspense fallback="waits">
          <Part />
        </Suspense>
      </Caught>
    </MantineProvider>,
  );
  await vi.advanceTimersByTimeAsync(10_000);
  vi.useRealTimers();
  expect(await screen.findByText("This page could not be shown")).toBeDefined();
  expect(screen.getByText("beside it")).toBeDefined();
  quiet.mockRestore();
});
