// Sorting by a click on a head, and the values of a chart under the pointer. The page is complete without it.
document.querySelectorAll('table.sort th').forEach(th => th.onclick = () => {
  const column = th.cellIndex, body = th.closest('table').tBodies[0], falls = th.ariaSort === 'descending';
  const value = row => { const text = row.cells[column].dataset.v ?? row.cells[column].textContent; return text === '' || isNaN(text) ? text : +text; };
  const order = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? 1 : -1) * (falls ? 1 : -1);
  [...body.rows].sort((a, b) => order(value(a), value(b))).forEach(row => body.append(row));
  th.parentNode.querySelectorAll('th').forEach(other => other.removeAttribute('aria-sort'));
  th.ariaSort = falls ? 'ascending' : 'descending';
});
const tip = document.getElementById('tip');
const number = v => Number(v.toPrecision(4)).toLocaleString('en', {maximumSignificantDigits: 4});
document.querySelectorAll('svg[data-axes]').forEach(svg => {
  const [left, right, top, bottom, x0, x1, y0, y1] = svg.dataset.axes.split(' ').map(Number);
  const cursor = svg.querySelector('.cursor');
  const valueAt = y => y0 + (bottom - y) / (bottom - top) * (y1 - y0);
  const curves = [...svg.querySelectorAll('[data-label]')].reverse().map(e => ({label: e.dataset.label, low: e.dataset.low,
    points: e.getAttribute('points').trim().split(' ').map(p => p.split(',').map(Number))}));
  curves.forEach(c => { if (c.low) { const n = c.points.length / 2; c.points = c.points.slice(0, n).map((p, i) => [p[0], bottom - (c.points[2 * n - 1 - i][1] - p[1])]); } });
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width, x = (event.clientX - box.left) * scale;
    let at = null;
    const nearest = curves.map(c => c.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    nearest.forEach(p => { if (at === null || Math.abs(p[0] - x) < Math.abs(at - x)) at = p[0]; });
    if (at === null) return;
    cursor.setAttribute('x1', at); cursor.setAttribute('x2', at); cursor.style.visibility = 'visible';
    tip.textContent = svg.dataset.x + ' ' + number(x0 + (at - left) / (right - left) * (x1 - x0)) +
      curves.map((c, i) => '\n' + c.label + '  ' + number(valueAt(nearest[i][1]))).join('');
    tip.style.visibility = 'visible';
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 10) + 'px';
  };
  svg.onpointerleave = () => { tip.style.visibility = cursor.style.visibility = 'hidden'; };
});
