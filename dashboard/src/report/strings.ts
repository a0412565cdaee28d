// The few texts that reports do not bring along. The page of a report has only these.
export const R = {
  noReport: "There is no report in this page.",
  measured: "How it was measured",
  figures: "The figures of this plot",
  table: "Figures; scrolls sideways",
  variant: "Variant",
  first: "First",
  least: "Least",
  median: "Median",
  most: "Most",
  last: "Last",
  onFront: "One of the best trade-offs",
  yes: "yes",
  no: "no",
  beyond: "beyond the end of the plot",
  classes: {
    baseline: "the baseline",
    limit: "the limit",
    better: "better",
    worse: "worse",
    same: "no difference is seen",
  },
};
