// Builds dist/report.html, the page of all reports of the lab: script and style are within it, and a policy allows
// nothing but these. The lab puts the document where `null` is.
import { createHash } from "node:crypto";
import { defineConfig, type Plugin } from "vite";

const PLACE = '<script type="application/json" id="document">null</script>';

const hash = (text: string) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

function withinPage(): Plugin {
  return {
    name: "within-page",
    enforce: "post",
    generateBundle(_options, bundle) {
      const page = bundle["report.html"];
      if (page?.type !== "asset") throw new Error("report.html was not built");
      let script = "";
      let style = "";
      for (const [name, part] of Object.entries(bundle)) {
        if (part === page) continue;
        if (part.type === "chunk") script += part.code;
        else if (name.endsWith(".css")) style += String(part.source);
        else throw new Error(`${name} cannot be within the page`);
        delete bundle[name];
      }
      script = script
        .trim()
        .replace(/<\/(script)/gi, "<\\/$1")
        .replaceAll("<!--", "<\\!--");
      style = style.trim();
      const policy =
        `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; ` +
        "form-action 'none'";
      const html = String(page.source)
        .replace(/\s*<script type="module"[^>]*><\/script>/, "")
        .replace(/\s*<link rel="stylesheet"[^>]*>/, "")
        .replace(
          '<meta charset="utf-8" />',
          () =>
            `<meta charset="utf-8" />\n    <meta http-equiv="content-security-policy" content="${policy}" />`,
        )
        .replace("</head>", () => `  <style>${style}</style>\n  </head>`)
        .replace(/<script type="application\/json" id="document">\s*null\s*<\/script\s*>/, PLACE)
        .replace(PLACE, () => `${PLACE}\n    <script>${script}</script>`);
      if (html.split(PLACE).length !== 2 || html.split("</script>").length !== 3)
        throw new Error("the page has another form than the lab expects");
      page.source = html;
    },
  };
}

export default defineConfig({
  base: "./",
  publicDir: false,
  plugins: [withinPage()],
  build: {
    target: ["chrome123", "firefox121", "safari17.5"],
    outDir: "dist",
    emptyOutDir: false,
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: "report.html",
      output: { format: "iife", codeSplitting: false },
    },
  },
});
