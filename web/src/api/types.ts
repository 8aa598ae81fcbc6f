import type { components } from "./schema";

// Short names of what the API speaks of. schema.d.ts is generated from docs/openapi.json by `npm run types`.
type Schemas = components["schemas"];
export type Applied = Schemas["Applied"];
export type AppKey = Schemas["AppKey"];
export type AppView = Schemas["AppView"];
export type ServiceView = Schemas["ServiceView"];
export type RolloutView = Schemas["RolloutView"];
export type Instance = Schemas["Instance"];
export type Event = Schemas["Event"];
export type ClusterView = Schemas["ClusterView"];
export type ClassAggregate = Schemas["ClassAggregate"];
export type CreditView = Schemas["CreditView"];
export type Migrating = Schemas["Migrating"];
export type WorkerView = Schemas["WorkerView"];
export type History = Schemas["History"];
export type HistoryPoint = Schemas["HistoryPoint"];
export type Upgrade = Schemas["Upgrade"];
export type UpgradeCluster = Schemas["UpgradeCluster"];
export type RuntimeReport = Schemas["RuntimeReport"];
export type DrainView = Schemas["DrainView"];
export type RebalancePlan = Schemas["RebalancePlan"];
export type OverlayView = Schemas["OverlayView"];
export type PathView = Schemas["PathView"];
export type Coordinate = Schemas["Coordinate"];
export type Location = Schemas["Location"];
export type Version = Schemas["VersionView"];
export type VolumeView = Schemas["VolumeView"];
export type ImageView = Schemas["ImageView"];
export type Explanation = Schemas["Explanation"];
export type Decision = Schemas["Decision"];
export type Plan = Schemas["Plan"];
export type Problem = Schemas["Problem"];
export type FieldProblem = Schemas["FieldProblem"];
export type Who = Schemas["Who"];
export type Grant = Schemas["Grant"];
export type Reason = Schemas["Reason"];
export type Resources = Schemas["Resources"];

/** List is what every list answers with. */
export interface List<T> {
  items: T[];
}

/** WatchMessage is one line of /v1/watch. */
export interface WatchMessage {
  type: "set" | "deleted" | "synced" | "missed" | "beat";
  kind?: "app" | "instance" | "event";
  key?: AppKey;
  id?: string;
  app?: AppView;
  instance?: Instance;
  event?: Event;
}
