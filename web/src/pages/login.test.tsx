import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { ApiError, type Client } from "../api/client";
import { SessionProvider } from "../state/session";
import { LoginForm } from "./login";

test("a code is asked for when the server wants one, and again when it was wrong", async () => {
  const user = userEvent.setup();
  const given: (string | undefined)[] = [];
  const client = {
    resume: async () => false,
    offersProvider: async () => true,
    call: async () => ({ user: "anna", role: "root", site: "harbour", scopes: [], grants: [] }),
    login: async (_user: string, _password: string, otp?: string) => {
      given.push(otp);
      if (otp === "123456") return;
      const message = otp ? "is wrong" : "is missing";
      throw new ApiError(401, { detail: "a code is needed", problems: [{ path: "otp", message }] });
    },
  } as unknown as Client;
  render(
    <MantineProvider env="test">
      <SessionProvider client={client}>
        <LoginForm />
      </SessionProvider>
    </MantineProvider>,
  );
  await screen.findByRole("button", { name: "Log in at the identity provider" });
  expect(screen.queryByLabelText(/One-time code/)).toBeNull();
  await user.type(screen.getByLabelText(/User/), "anna");
  await user.type(screen.getByLabelText(/^Password/), "long enough");
  await user.click(screen.getByRole("button", { name: "Log in" }));
  const field = await screen.findByLabelText(/One-time code/);
  expect(screen.queryByText(/a code is needed/)).toBeNull();
  await user.type(field, "000000");
  await user.click(screen.getByRole("button", { name: "Log in" }));
  await screen.findByText(/a code is needed/);
  await user.type(screen.getByLabelText(/One-time code/), "123456");
  await user.click(screen.getByRole("button", { name: "Log in" }));
  expect(given).toEqual([undefined, "000000", "123456"]);
});
