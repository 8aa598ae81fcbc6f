import { Center, Loader, Stack, Text } from "@mantine/core";
import { Suspense } from "react";
import { Route, Routes, useLocation } from "react-router-dom";
import { Login } from "./pages/login";
import { Overview } from "./pages/overview";
import { Empty, Page } from "./parts/basics";
import { Caught, later } from "./parts/later";
import { Shell } from "./shell";
import { useSession } from "./state/session";

// A page's code comes when it is first opened: links of sites are slow.
const Apps = later(() => import("./pages/apps"));
const AppPage = later(() => import("./pages/app"));
const Instances = later(() => import("./pages/instances"));
const Volumes = later(() => import("./pages/volumes"));
const Images = later(() => import("./pages/images"));
const Build = later(() => import("./pages/build"));
const Clusters = later(() => import("./pages/clusters"));
const ClusterPage = later(() => import("./pages/cluster"));
const Upgrades = later(() => import("./pages/upgrades"));
const UpgradePage = later(async () => ({ default: (await import("./pages/upgrades")).UpgradePage }));
const Ingresses = later(() => import("./pages/ingresses"));
const Workers = later(() => import("./pages/workers"));
const WorkerPage = later(() => import("./pages/worker"));
const WorldPage = later(() => import("./pages/map"));
const People = later(() => import("./pages/people"));
const Bench = later(() => import("./pages/bench"));
const InstancePage = later(() => import("./pages/instance"));

const waiting = (
  <Center p="xl">
    <Loader aria-label="Loading" />
  </Center>
);

export function App() {
  const { phase, error } = useSession();
  const { pathname } = useLocation();
  if (phase === "begin")
    return (
      <Center h="100vh">
        <Stack align="center">
          <Loader aria-label="Loading" />
          {error && <Text role="status">{error}; it is tried again</Text>}
        </Stack>
      </Center>
    );
  if (phase === "out") return <Login />;
  return (
    <Shell>
      <Caught key={pathname}>
        <Suspense fallback={waiting}>
          <Routes>
            <Route index element={<Overview />} />
            <Route path="apps" element={<Apps />} />
            <Route path="apps/:namespace/:app" element={<AppPage />} />
            <Route path="build" element={<Build key="new" />} />
            <Route path="build/:namespace/:app" element={<Build />} />
            <Route path="instances" element={<Instances />} />
            <Route path="instances/:id" element={<InstancePage />} />
            <Route path="volumes" element={<Volumes />} />
            <Route path="images" element={<Images />} />
            <Route path="clusters" element={<Clusters />} />
            <Route path="clusters/:name" element={<ClusterPage />} />
            <Route path="upgrades" element={<Upgrades />} />
            <Route path="upgrades/:name" element={<UpgradePage />} />
            <Route path="ingresses" element={<Ingresses />} />
            <Route path="workers" element={<Workers />} />
            <Route path="workers/:name" element={<WorkerPage />} />
            <Route path="map" element={<WorldPage />} />
            <Route path="bench" element={<Bench />} />
            <Route path="people" element={<People />} />
            <Route
              path="*"
              element={
                <Page title="Not found">
                  <Empty>There is no such page.</Empty>
                </Page>
              }
            />
          </Routes>
        </Suspense>
      </Caught>
    </Shell>
  );
}
