"use strict";
for (const canvas of document.querySelectorAll("canvas.heat")) {
  const data = JSON.parse(document.getElementById(canvas.dataset.source).textContent);
  const left = 64, bottom = 34, draw = canvas.getContext("2d");
  const whole = { x0: 0, x1: data.columns, y0: data.lowest, y1: data.highest + 1 };
  let view = { ...whole };
  const most = Math.log1p(data.cells.reduce((most, cell) => Math.max(most, cell[2]), 1));
  const style = getComputedStyle(document.body);
  const label = (ns) => ns < 1e3 ? ns.toFixed(0) + " ns" : ns < 1e6 ? (ns / 1e3).toPrecision(3) + " µs"
    : ns < 1e9 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e9).toPrecision(3) + " s";
  const paint = () => {
    const width = canvas.width - left, height = canvas.height - bottom;
    const sx = width / (view.x1 - view.x0), sy = height / (view.y1 - view.y0);
    draw.clearRect(0, 0, canvas.width, canvas.height);
    for (const [column, bin, count] of data.cells) {
      if (column + 1 < view.x0 || column > view.x1 || bin + 1 < view.y0 || bin > view.y1) continue;
      const share = Math.log1p(count) / most;
      draw.fillStyle = `hsl(${250 - 210 * share} 85% ${30 + 30 * share}%)`;
      const x = left + (column - view.x0) * sx, y = height - (bin + 1 - view.y0) * sy;
      draw.fillRect(Math.max(x, left), y, Math.ceil(sx), Math.min(Math.ceil(sy), height - y));
    }
    draw.fillStyle = style.color;
    draw.font = "13px system-ui, sans-serif";
    for (let tick = 0; tick <= 6; tick++) {
      const bin = view.y0 + (view.y1 - view.y0) * tick / 6;
      draw.textAlign = "right";
      draw.fillText(label(2 ** (bin / 4)), left - 6, Math.max(11, height - height * tick / 6));
      const column = view.x0 + (view.x1 - view.x0) * tick / 6;
      draw.textAlign = tick === 6 ? "right" : "center";
      draw.fillText((column * data.column_s).toPrecision(4) + " s", left + width * tick / 6, height + 20);
    }
    canvas.dataset.painted = data.cells.length;
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * canvas.width / box.width, y = (event.clientY - box.top) * canvas.height / box.height;
    return [Math.max(0, (x - left) / (canvas.width - left)), Math.min(1, 1 - y / (canvas.height - bottom))];
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x, y] = place(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
    const zoom = (low, high, share, least, most) => {
      const span = Math.min(Math.max((high - low) * factor, 4), most - least);
      const from = Math.min(Math.max(low + (high - low) * share - span * share, least), most - span);
      return [from, from + span];
    };
    [view.x0, view.x1] = zoom(view.x0, view.x1, x, whole.x0, whole.x1);
    if (!event.shiftKey) [view.y0, view.y1] = zoom(view.y0, view.y1, y, whole.y0, whole.y1);
    paint();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = [place(event), { ...view }]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [x, y] = place(event), [[fromX, fromY], old] = held;
    const dx = Math.min(Math.max((fromX - x) * (old.x1 - old.x0), whole.x0 - old.x0), whole.x1 - old.x1);
    const dy = Math.min(Math.max((fromY - y) * (old.y1 - old.y0), whole.y0 - old.y0), whole.y1 - old.y1);
    view = { x0: old.x0 + dx, x1: old.x1 + dx, y0: old.y0 + dy, y1: old.y1 + dy };
    paint();
  });
  canvas.addEventListener("dblclick", () => { view = { ...whole }; paint(); });
  paint();
}
