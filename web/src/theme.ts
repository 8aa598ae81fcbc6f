import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core";

// The sea around a skerry: from foam to deep water. Text on 7 and above reaches 4.5 : 1 on white.
const sea: MantineColorsTuple = [
  "#e6f7f9",
  "#cfecef",
  "#a0d8de",
  "#6ec4cc",
  "#47b2bd",
  "#2ea8b4",
  "#0f8592",
  "#0b6b77",
  "#0b5964",
  "#084852",
];

export const theme = createTheme({
  primaryColor: "sea",
  primaryShade: { light: 7, dark: 8 },
  colors: { sea },
  autoContrast: true,
  luminanceThreshold: 0.35,
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
  fontFamilyMonospace: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace",
  defaultRadius: "md",
  respectReducedMotion: true,
  cursorType: "pointer",
});

// What the kit writes in a light grey is too faint to read for many.
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#495057",
    "--mantine-color-placeholder": "#5c636a",
    "--mantine-color-error": "#c92a2a",
    "--mantine-color-teal-light-color": "#05604a",
    "--mantine-color-blue-light-color": "#1558a8",
    "--mantine-color-gray-light-color": "#495057",
    "--mantine-color-yellow-light-color": "#7a4a00",
    "--mantine-color-orange-light-color": "#8a3a00",
    "--mantine-color-red-light-color": "#a61e1e",
    "--mantine-color-red-outline": "#c92a2a",
    "--mantine-color-teal-filled": "#087f5b",
    "--mantine-color-red-filled": "#c92a2a",
    "--mantine-color-anchor": "#0b5964",
  },
  dark: {
    "--mantine-color-dimmed": "#b8bec5",
    "--mantine-color-placeholder": "#a3aab2",
    "--mantine-color-teal-filled": "#087f5b",
    "--mantine-color-red-filled": "#c92a2a",
    "--mantine-color-anchor": "#6ec4cc",
    "--mantine-color-error": "#ff8787",
  },
});
