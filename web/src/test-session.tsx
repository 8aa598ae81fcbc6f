import { MantineProvider } from "@mantine/core";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";
import { createMemoryRouter, RouterProvider } from "react-router-dom";
import { ApiError, type Client } from "./api/client";
import type { Who } from "./api/types";
import { ActsProvider } from "./parts/basics";
import { SessionProvider } from "./state/session";

/**
 * asUser renders a page for somebody with these scopes. The server gives answers by path, a function's result each time anew;
 * what it was asked is in calls.
 */
export function asUser(
  page: ReactNode,
  o: {
    role: "root" | "cluster";
    scopes: string[];
    at: string;
    route: string;
    answers: Record<string, unknown>;
    watch?: unknown[];
    /** sent gets the bodies of requests. */
    sent?: string[];
    /** client replaces parts of the server's. */
    client?: object;
  },
): { calls: string[] } {
  const calls: string[] = [];
  const who: Who = { user: "anna", role: o.role, site: "harbour", scopes: o.scopes, grants: [] };
  const client = {
    resume: async () => true,
    call: async (method: string, path: string, c?: { body?: unknown; query?: Record<string, string> }) => {
      calls.push(method + " " + path);
      if (c?.body !== undefined) o.sent?.push(typeof c.body === "string" ? c.body : JSON.stringify(c.body));
      if (path === "/v1/auth/whoami") return who;
      const answer = o.answers[path + (c?.query ? "?" + new URLSearchParams(c.query) : "")] ?? o.answers[path];
      if (answer instanceof Function) return answer();
      if (answer !== undefined) return answer;
      if (path === "/v1/events") return { items: [] };
      throw new ApiError(404, { detail: "there is no " + path });
    },
    open: async (_: string, path: string, c: { signal?: AbortSignal }) => {
      calls.push("GET " + path);
      const text = [...(o.watch ?? []), { type: "synced" }].map((m) => JSON.stringify(m) + "\n").join("");
      const body = new ReadableStream<Uint8Array>({
        start(control) {
          control.enqueue(new TextEncoder().encode(text));
          c.signal?.addEventListener("abort", () => control.error(new DOMException("", "AbortError")));
        },
      });
      return new Response(body);
    },
    ...o.client,
  } as unknown as Client;
  const router = createMemoryRouter([{ path: o.route, element: page }], { initialEntries: [o.at] });
  render(
    <MantineProvider env="test">
      <SessionProvider client={client}>
        <ActsProvider>
          <RouterProvider router={router} />
        </ActsProvider>
      </SessionProvider>
    </MantineProvider>,
  );
  return { calls };
}
