import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { ApiError, type Client } from "../api/client";
import { SessionProvider, useSession } from "../state/session";
import { Login, LoginForm } from "./login";

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

test("a logout of which the server does not hear is said to be one of this browser alone", async () => {
  const user = userEvent.setup();
  const end = (status: number) => {
    const client = {
      resume: async () => true,
      offersProvider: async () => false,
      call: async () => ({ user: "anna", role: "root", site: "harbour", scopes: [], grants: [] }),
      logout: async () => {
        throw new ApiError(status, { detail: "the server cannot be reached" });
      },
    } as unknown as Client;
    const Out = () => {
      const { phase, logout } = useSession();
      return phase === "out" ? (
        <Login />
      ) : (
        <button type="button" onClick={() => void logout()}>
          Leave
        </button>
      );
    };
    return render(
      <MantineProvider env="test">
        <SessionProvider client={client}>
          <Out />
        </SessionProvider>
      </MantineProvider>,
    );
  };
  const first = end(0);
  await user.click(await screen.findByRole("button", { name: "Leave" }));
  expect(await screen.findByText(/the session goes on at the server: the server cannot be reached/)).toBeTruthy();
  first.unmount();
  end(401); // it had ended before
  await user.click(await screen.findByRole("button", { name: "Leave" }));
  expect(await screen.findByLabelText(/User/)).toBeTruthy();
  expect(screen.queryByText(/the session goes on/)).toBeNull();
});
