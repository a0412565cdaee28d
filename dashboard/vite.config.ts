// Builds the four files that the daemon has inside it. Their names are fixed, and the same sources give the
// same bytes: a test of the repository compares them.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  publicDir: "public",
  build: {
    target: ["chrome123", "firefox121", "safari17.5"],
    outDir: "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    sourcemap: false,
    reportCompressedSize: true,
    chunkSizeWarningLimit: 700,
    rollupOptions: {
      output: {
        entryFileNames: "app.js",
        codeSplitting: false,
        assetFileNames: "app[extname]",
      },
    },
  },
});
