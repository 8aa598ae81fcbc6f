import "@mantine/core/styles.css";
import "./style.css";
import { MantineProvider } from "@mantine/core";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createBrowserRouter, RouterProvider } from "react-router-dom";
import { App } from "./app";
import { ActsProvider } from "./parts/basics";
import { SessionProvider } from "./state/session";
import { theme, variables } from "./theme";

// One route: the application's own routes are below it. Only such a router can ask before a page is left.
const router = createBrowserRouter([{ path: "*", element: <App /> }], {
  basename: "/ui",
  future: { v7_relativeSplatPath: true },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto">
      <SessionProvider>
        <ActsProvider>
          <RouterProvider router={router} future={{ v7_startTransition: true }} />
        </ActsProvider>
      </SessionProvider>
    </MantineProvider>
  </StrictMode>,
);
