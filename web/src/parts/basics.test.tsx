import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { ApiError } from "../api/client";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { asUser } from "../test-session";
import { Loaded, useActs } from "./basics";

const patience = { timeout: 20_000 };

function Shown() {
  const q = useGet<{ n: number }>("/v1/thing", 0.05);
  return <Loaded of={q}>{(d) => <p>{d.n} things</p>}</Loaded>;
}

test("what was read before is shown as that while it cannot be read", async () => {
  let asked = 0;
  const thing = () => {
    asked++;
    if (asked === 2) throw new ApiError(503, { detail: "the role is starting" });
    return { n: asked };
  };
  asUser(<Shown />, { role: "root", scopes: [], at: "/", route: "/", answers: { "/v1/thing": thing } });
  expect(await screen.findByText("1 things", {}, patience)).toBeTruthy();
  expect(await screen.findByText(/It cannot be read now: the role is starting/, {}, patience)).toBeTruthy();
  expect(await screen.findByText(/\d+ things/, {}, patience)).toBeTruthy();
  await expect.poll(() => screen.queryByText(/It cannot be read now/), patience).toBeNull();
});

function Do() {
  const { client } = useSession();
  const { act } = useActs();
  return (
    <button type="button" onClick={() => void act(() => client.call("POST", "/v1/do"), "It is done")}>
      Do
    </button>
  );
}

test.each([
  [{ unchanged: true, warnings: [] }, "Nothing was changed: it is so already.", "It is done"],
  [{ unchanged: false, warnings: ["left to the root: sum"] }, "left to the root: sum", "Nothing was changed"],
  [undefined, "It is done", "Nothing was changed"],
])("what the server says of a change is shown: %j", async (answer, want, not) => {
  const user = userEvent.setup();
  asUser(<Do />, { role: "root", scopes: [], at: "/", route: "/", answers: { "/v1/do": () => answer } });
  await user.click(await screen.findByRole("button", { name: "Do" }));
  expect(await screen.findByText(want)).toBeTruthy();
  expect(screen.queryByText(new RegExp(not))).toBeNull();
});

function Many() {
  const { say } = useActs();
  return (
    <button
      type="button"
      onClick={() => {
        say("", new ApiError(409, { detail: "it is in use" }));
        for (let n = 0; n < 9; n++) say(`done ${n}`);
      }}
    >
      Do
    </button>
  );
}

test("what failed stays, however much is done after it", async () => {
  const user = userEvent.setup();
  asUser(<Many />, { role: "root", scopes: [], at: "/", route: "/", answers: {} });
  await user.click(await screen.findByRole("button", { name: "Do" }));
  expect(await screen.findByText("done 8")).toBeTruthy();
  expect(screen.getByText("it is in use")).toBeTruthy();
  expect(screen.queryByText("done 1")).toBeNull();
});
