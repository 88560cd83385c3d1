// Draws the figures of the page with Observable Plot, and lets the timeline be zoomed with d3-zoom.
"use strict";
(() => {
  const {plot, barX, dot, line, ruleX, link, text, axisY, select, zoom, zoomIdentity} = Drawing;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const colour = (name) => `var(--${name})`;
  const named = (names) => ({type: "ordinal", domain: names, range: names.map(colour)});
  const longest = (labels) => Math.max(0, ...labels.map((each) => each.length));
  const room = (labels, width) => Math.min(8 + 6.6 * longest(labels), 0.36 * width);
  const labels = (margin) => axisY({label: null, tickSize: 0, lineWidth: (margin - 6) / 12, textOverflow: "ellipsis"});

  function timeline(data, width, [from, to]) {
    const rows = data.lanes;
    const marginLeft = room(rows, width);
    const spans = data.spans.map(([lane, part, a, b]) => ({lane: rows[lane], part, a, b}));
    const visible = spans.filter((each) => each.b >= from && each.a <= to);
    const marks = data.marks.filter((each) => each.b >= from && each.a <= to);
    const title = (each) => `${each.text}\n${each.a.toFixed(3)} to ${each.b.toFixed(3)} ms (${(each.b - each.a).toFixed(3)} ms)`;
    return plot({
      width, marginLeft, marginRight: 16, height: 34 * rows.length + 66, marginBottom: 44,
      x: {domain: [from, to], label: "ms from the begin of the first step shown"},
      y: {domain: rows, label: null}, color: named(data.colours),
      marks: [
        ruleX(data.borders.filter((each) => each >= from && each <= to), {stroke: "var(--line)"}),
        labels(marginLeft),
        barX(visible, {x1: "a", x2: "b", y: "lane", fill: "part", stroke: "part", strokeWidth: 0.5, insetTop: 3, insetBottom: 3, clip: true,
          title: (each) => title({...each, text: `${each.lane}: ${data.words[each.part]}`}), tip: true}),
        barX(marks, {x1: "a", x2: "b", y: "lane", fill: "kind", stroke: "kind", strokeWidth: 0.5, insetTop: 9, insetBottom: 9, clip: true}),
        dot(marks, {x: (each) => (Math.max(from, each.a) + Math.min(to, each.b)) / 2, y: "lane", fill: "kind", symbol: "kind", r: 4, title, tip: true, clip: true}),
      ],
      symbol: {legend: false, domain: ["collection", "compilation", "wait", "outlier"], range: ["square", "diamond", "triangle", "star"]},
    });
  }

  function stack(data, width) {
    const marginLeft = room(data.bars, width);
    const parts = data.parts.map(([bar, part, a, b]) => ({bar, part, a, b}));
    const most = Math.max(...parts.map((each) => each.b));
    return plot({
      width, marginLeft, marginRight: 16, height: 38 * data.bars.length + 66, marginBottom: 44,
      x: {label: "ms a step", domain: [0, most]}, y: {domain: data.bars, label: null}, color: named(data.colours),
      marks: [
        labels(marginLeft),
        barX(parts, {x1: "a", x2: "b", y: "bar", fill: "part", insetTop: 3, insetBottom: 3, tip: true,
          title: (each) => `${each.bar}\n${data.words[each.part]}: ${(each.b - each.a).toFixed(3)} ms`}),
        ruleX([0]),
      ],
    });
  }

  // Round ratios, none nearer to another than a label is wide.
  function apart([low, high], width) {
    const steps = [1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7];
    const candidates = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6].flatMap((power) => steps.map((each) => each * 10 ** power));
    const at = (ratio) => width * Math.log(ratio / low) / Math.log(high / low);
    const important = [1, ...candidates.filter((each) => [1, 2, 5].includes(+(each / 10 ** Math.floor(Math.log10(each) + 1e-9)).toFixed(6))), ...candidates];
    const kept = [];
    for (const each of important) {
      if (each >= low && each <= high && kept.every((other) => Math.abs(at(each) - at(other)) > 48)) kept.push(each);
    }
    return kept;
  }

  function intervals(data, width) {
    const names = data.rows.map((each) => each.label);
    const marginLeft = room(names, width);
    const ends = [...data.rules, ...data.rows.flatMap((each) => [each.low, each.high, ...each.points])];
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const margin = data.log ? 1 : (high - low || Math.abs(high) || 1) * 0.05;
    const domain = data.log ? [low / 1.02, high * 1.02] : [low - margin, high + margin];
    return plot({
      width, marginLeft, marginRight: 24, height: 30 * names.length + 66, marginBottom: 44,
      x: {type: data.log ? "log" : "linear", domain, label: data.x, ticks: data.log ? apart(domain, width - marginLeft) : Math.max(3, Math.round(width / 110)), tickFormat: data.percent ? (v) => `${(100 * v).toFixed(1)}%` : (v) => `${+v.toPrecision(3)}×`, grid: true},
      y: {type: "point", domain: names, label: null, padding: 0.5}, color: named(data.colours),
      marks: [
        labels(marginLeft),
        ruleX(data.rules, {stroke: "currentColor", strokeDasharray: "4 3"}),
        dot(data.rows.flatMap((each) => each.points.map((value) => ({label: each.label, value}))), {x: "value", y: "label", r: 3, stroke: "var(--quiet)", dy: 8}),
        link(data.rows, {x1: "low", x2: "high", y1: "label", y2: "label", stroke: "group", strokeWidth: 3}),
        dot(data.rows, {x: "value", y: "label", fill: "group", r: 5, title: "text", tip: true}),
      ],
    });
  }

  function curve(data, width) {
    const points = data.points;
    const marked = points.filter((each) => each.mark);
    const withRange = points.filter((each) => each.high > each.low);
    const series = [...new Set(points.map((each) => each.series))];
    return plot({
      width, marginLeft: 64, marginRight: 24, marginTop: 28, marginBottom: 44, insetLeft: 14, insetRight: 8, height: Math.max(220, Math.min(320, width / 2)),
      x: {type: data.log ? "log" : "linear", base: 2, label: data.x, ...(data.ticks ? {ticks: data.ticks} : {}), tickFormat: (v) => `${+v.toPrecision(4)}`},
      y: {label: data.y, zero: data.zero, grid: true, nice: true},
      color: named(data.colours),
      marks: [
        link(withRange, {x1: "x", x2: "x", y1: "low", y2: "high", stroke: "series", strokeWidth: 2}),
        link(data.levels, {x1: "from", x2: "to", y1: "y", y2: "y", stroke: "currentColor", strokeDasharray: "5 3"}),
        ruleX(data.changes, {x: "x", stroke: "var(--bad)", strokeDasharray: "3 3", title: "text", tip: true}),
        line(points, {x: "x", y: "y", stroke: "series", z: (each) => each.group ?? each.series, strokeWidth: 2}),
        dot(points, {x: "x", y: "y", fill: "series", r: points.length > 60 * series.length ? 1.5 : 3.5, title: "text", tip: true}),
        dot(marked, {x: "x", y: "y", r: 9, stroke: "currentColor", strokeWidth: 2}),
        text(marked, {x: "x", y: "y", text: "mark", dy: -16, fill: "currentColor", stroke: "var(--raised)", strokeWidth: 4}),
      ],
    });
  }

  function bars(data, width) {
    const names = data.rows.map((each) => each.label);
    const marginLeft = room(names, width);
    return plot({
      width, marginLeft, marginRight: 56, height: 28 * names.length + 66, marginBottom: 44,
      x: {label: data.x, domain: [0, Math.max(...data.rows.map((each) => each.value))], grid: true},
      y: {domain: names, label: null},
      marks: [
        labels(marginLeft),
        barX(data.rows, {x: "value", y: "label", fill: "var(--device)", insetTop: 3, insetBottom: 3, title: "text", tip: true}),
        text(data.rows, {x: "value", y: "label", text: (each) => `${each.value.toFixed(1)}%`, textAnchor: "start", dx: 5, fill: "currentColor"}),
        ruleX([0]),
      ],
    });
  }

  const kinds = {timeline, stack, intervals, curve, bars};

  function show(canvas, picture) {
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", `Plot: ${canvas.dataset.title}. Its numbers stand in the table below.`);
    for (const part of picture.querySelectorAll("[aria-label]")) {  // within an image none may be named
      part.dataset.part = part.getAttribute("aria-label");
      part.removeAttribute("aria-label");
    }
    canvas.querySelector("svg")?.remove();
    canvas.append(picture);
  }

  function draw(canvas) {
    const data = figures[+canvas.dataset.number];
    const width = Math.max(280, canvas.clientWidth);
    try {
      show(canvas, kinds[canvas.dataset.kind](data, width, canvas.domain ?? data.domain));
    } catch (error) {
      canvas.textContent = "This plot could not be drawn; its numbers stand in the table below.";
      console.error(error);
    }
  }

  function zoomable(canvas) {
    const data = figures[+canvas.dataset.number];
    const [first, last] = data.domain;
    let asked = 0;
    const behavior = zoom().scaleExtent([1, 5000]).clickDistance(4)
      .filter((event) => event.type === "wheel" ? event.ctrlKey || event.metaKey || event.shiftKey
        : event.type.startsWith("touch") ? event.touches.length > 1 || canvas.domain !== undefined : !event.button)
      .extent(() => [[0, 0], [canvas.clientWidth, 1]])
      .translateExtent([[0, -Infinity], [0, Infinity]])
      .on("zoom", ({transform}) => {
        const shown = (px) => first + (last - first) * transform.invertX(px) / canvas.clientWidth;
        canvas.domain = transform.k === 1 ? undefined : [Math.max(first, shown(0)), Math.min(last, shown(canvas.clientWidth))];
        cancelAnimationFrame(asked);
        asked = requestAnimationFrame(() => draw(canvas));
      });
    const selection = select(canvas).call(behavior).on("dblclick.zoom", null);
    const limit = () => behavior.translateExtent([[0, -Infinity], [canvas.clientWidth, Infinity]]);
    const controls = document.createElement("div");
    controls.className = "controls";
    const actions = {
      "Zoom in": () => selection.call(behavior.scaleBy, 2),
      "Zoom out": () => selection.call(behavior.scaleBy, 0.5),
      "Earlier": () => selection.call(behavior.translateBy, canvas.clientWidth / 3 / scale(), 0),
      "Later": () => selection.call(behavior.translateBy, -canvas.clientWidth / 3 / scale(), 0),
      "Whole": () => selection.call(behavior.transform, zoomIdentity),
    };
    const scale = () => canvas.__zoom?.k ?? 1;
    for (const [name, action] of Object.entries(actions)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => { limit(); action(); });
      controls.append(button);
    }
    const hint = document.createElement("span");
    hint.className = "note";
    hint.textContent = "or Ctrl and the wheel, and drag";
    controls.append(hint);
    canvas.before(controls);
    canvas.classList.add("zoomable");
    limit();
    addEventListener("resize", limit);
  }

  async function copy(button) {
    const source = document.getElementById(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    document.getElementById("said").textContent = "Copied to the clipboard";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  const canvases = [...document.querySelectorAll(".canvas")];
  for (const canvas of canvases) {
    if (canvas.dataset.kind === "timeline") zoomable(canvas);
    draw(canvas);
  }
  addEventListener("resize", () => canvases.forEach(draw));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copies]");
    if (button) copy(button);
  });
})();
